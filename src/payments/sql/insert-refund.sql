-- Begins a refund, and counts it in its order. The caller has locked the order.
-- $1 order_id  $2 usd_micro  $3 external_id or null  $4 micro  $5 state  $6 reason  $7 made_by
-- $8 bonus_micro
with counted as (
  update payment_orders set refunded_usd_micro = refunded_usd_micro + $2 where order_id = $1
)
insert into payment_refunds (order_id, n, usd_micro, external_id, micro, state, reason, made_by,
  bonus_micro)
select $1, count(*) + 1, $2::bigint, $3, $4::bigint, $5, $6, $7, $8::bigint
from payment_refunds
where order_id = $1
returning n;
