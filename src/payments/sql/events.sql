-- timeout_ms=5000

-- name: InsertEvents :run
-- Stores what became true of an order, but for what is stored. An event of a payment gets the hash
-- of its transaction, where one is known. The caller has locked the order.
-- :subjects  what each is of, such as the number of a refund
-- :deposit_ids  the payment of each; empty: none
insert into payment_events (order_id, kind, subject, facts)
select o.order_id, e.kind, e.subject,
  jsonb_strip_nulls(jsonb_build_object('tx', (
    select min(t.tx) from payment_transactions t
    where t.processor = o.processor and t.external_id = e.deposit_id
  ))) || e.facts::jsonb
from unnest(:kinds::text[], :subjects::text[], :facts::text[], :deposit_ids::text[])
  as e (kind, subject, facts, deposit_id)
join payment_orders o on o.order_id = :order_id
on conflict do nothing;

-- name: ListUnreadEvents :many
-- Lists events that have still to become alerts, in the order of their numbers, with what alerts
-- say of their orders.
select e.order_id, e.n, e.kind, e.subject, e.at, e.facts, o.account_id, o."family", o.asset,
  o.network, o.decimals, o.created_by
from payment_events e
join payment_orders o on o.order_id = e.order_id
where not e.is_read
order by e.n
limit :rows;

-- name: MarkEventsRead :run
-- Notes that events became alerts.
update payment_events e
set is_read = true
from unnest(:order_ids::text[], :ns::bigint[]) as r (order_id, n)
where e.order_id = r.order_id and e.n = r.n;

-- name: ListEvents :many
-- Lists the events of some orders, oldest first.
select e.order_id, e.kind, e.at, e.facts, o.decimals
from payment_events e
join payment_orders o on o.order_id = e.order_id
where e.order_id = any(:order_ids::text[])
order by e.n;
