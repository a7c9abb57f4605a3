-- Stores a receipt or a credit note. The caller has locked the order and taken the number.
-- $1 seller  $2 kind  $3 year  $4 n  $5 number  $6 order_id
-- $7 n of the grant that it takes back, or null  $8 n of the refund, or null
insert into payment_documents (seller, kind, year, n, number, order_id, grant_n, refund_n)
values ($1, $2, $3, $4, $5, $6, $7, $8);
