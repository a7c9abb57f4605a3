-- Lists the open orders of an account and pool by some methods, but for one.
-- $1 processor  $2 account_id  $3 family  $4 networks  $5 order_id
select order_id from payment_orders
where processor = $1 and account_id = $2 and "family" = $3 and network = any($4::text[])
  and order_id <> $5 and state = 'open' and external_id is not null;
