-- Moves a refund to another state. No row: it is in another one than expected. A refund that ends
-- without money is not counted in its order any more. The caller has locked the order.
-- $1 order_id  $2 n  $3 the expected state  $4 the new state  $5 transfer_id or null
-- $6 cancel_transfer_id or null  $7 transaction or null
with moved as (
  update payment_refunds
  set state = $4, transfer_id = coalesce($5, transfer_id),
    cancel_transfer_id = coalesce($6, cancel_transfer_id),
    "transaction" = coalesce($7, "transaction"),
    ended_at = case when $4 in ('refused', 'completed', 'cancelled') then now() end
  where order_id = $1 and n = $2 and state = $3
  returning usd_micro, n
), counted as (
  update payment_orders o
  set refunded_usd_micro = refunded_usd_micro - m.usd_micro
  from moved m
  where o.order_id = $1 and $4 in ('refused', 'cancelled')
)
select n from moved;
