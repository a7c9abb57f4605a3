-- Lists the receipt of an order, then its credit notes by number, with what each takes back.
-- $1 order_id
select d.number, d.kind, d.issued_at, o.seller_name, o.seller_address, o.seller_tax_id,
  o.buyer_name, o.buyer_address, o.buyer_tax_id, coalesce(-g.micro, r.micro, 0) as micro,
  coalesce(-g.micro / 200, nullif(r.usd_micro, 0), r.micro / 200, 0) as usd_micro
from payment_documents d
join payment_orders o on o.order_id = d.order_id
left join payment_grants g on g.order_id = d.order_id and g.n = d.grant_n
left join payment_refunds r on r.order_id = d.order_id and r.n = d.refund_n
where d.order_id = $1
order by d.kind desc, d.issued_at, d.number;
