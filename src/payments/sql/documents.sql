-- timeout_ms=5000

-- name: TakeNumber :optional
-- Takes the next number of a kind of document, for the seller of an order, in the current UTC year.
-- Its row stays locked until the end of the transaction, which either uses the number or gives it
-- back: so there is no gap. No row: there is no such order. `cell`: of the installation, whose
-- numbers no other cell gives.
-- :kind payment_documents.kind
insert into payment_numbers (seller, kind, year, last)
select seller_id, :kind, extract(year from now() at time zone 'UTC')::integer, 1
from payment_orders
where order_id = :order_id
on conflict (seller, kind, year) do update set last = payment_numbers.last + 1
returning seller, year, last as n, (select cell from installation) as "cell?";

-- name: InsertDocument :run
-- Stores a receipt or a credit note. The caller has locked the order and taken the number.
-- :grant_n?  the chargeback of a credit note
-- :refund_n?  the refund of a credit note
insert into payment_documents (seller, kind, year, n, number, order_id, grant_n, refund_n)
values (:seller, :kind, :year, :n, :number, :order_id, :grant_n, :refund_n);

-- name: ListDocuments :many
-- Lists the receipt of an order, then its credit notes by number, with what each takes back.
select d.number as "number!", d.kind as "kind!", d.issued_at as "issued_at!",
  o.seller_name as "seller_name!", o.seller_address as "seller_address!",
  o.seller_tax_id as "seller_tax_id!", o.buyer_name as "buyer_name!",
  o.buyer_address as "buyer_address!", o.buyer_tax_id as "buyer_tax_id!",
  coalesce(-g.micro, r.micro, 0) as "micro!",
  coalesce(-g.micro / 200, nullif(r.usd_micro, 0), r.micro / 200, 0) as "usd_micro!"
from payment_documents d
join payment_orders o on o.order_id = d.order_id
left join payment_grants g on g.order_id = d.order_id and g.n = d.grant_n
left join payment_refunds r on r.order_id = d.order_id and r.n = d.refund_n
where d.order_id = :order_id
order by d.kind desc, d.issued_at, d.number;

-- name: FindDocuments :many
-- Finds receipts and credit notes of a range, oldest first. A micro-dollar is 200 micro-credits.
-- :account_id?  null: of all accounts
-- :to?  exclusive; null: up to now
-- :after_at  of the last one of the page before, or the start of the range
-- :after_order_id  of the same one
-- :after_number  of the same one
select d.number as "number!", d.kind as "kind!", d.issued_at as "issued_at!",
  d.issued_at::text as "position!", d.order_id as "order_id!", o.account_id as "account_id!",
  o."family" as "family!", o.processor as "processor!", o.seller_name as "seller_name!",
  o.seller_tax_id as "seller_tax_id!", o.buyer_name as "buyer_name!",
  o.buyer_tax_id as "buyer_tax_id!",
  case d.kind
    when 'receipt' then (
      select coalesce(sum(g.micro), 0) from payment_grants g
      where g.order_id = d.order_id and g.micro > 0)
    else coalesce(g.micro, -r.micro, 0)
  end::bigint as "micro!",
  case d.kind
    when 'receipt' then (
      select coalesce(sum(g.micro / 200), 0) from payment_grants g
      where g.order_id = d.order_id and g.micro > 0)
    else coalesce(g.micro / 200, -nullif(r.usd_micro, 0), -r.micro / 200, 0)
  end::bigint as "usd_micro!"
from payment_documents d
join payment_orders o on o.order_id = d.order_id
left join payment_grants g on g.order_id = d.order_id and g.n = d.grant_n
left join payment_refunds r on r.order_id = d.order_id and r.n = d.refund_n
where (:account_id::text is null or o.account_id = :account_id)
  and (d.issued_at, d.order_id, d.number)
    > (:after_at::timestamptz, :after_order_id::text, :after_number::text)
  and (:to::timestamptz is null or d.issued_at < :to)
order by d.issued_at, d.order_id, d.number
limit :rows;

-- name: FindDocument :optional
-- Finds a document of an account by its number. No row: there is none. Two sellers may have given
-- it the same number: the newest counts.
select d.number, d.kind, d.order_id, o.created_by
from payment_documents d
join payment_orders o on o.order_id = d.order_id
where d.number = :number and o.account_id = :account_id
order by d.issued_at desc
limit 1;
