-- Notes a delivery of a webhook, and makes the order that it is about due for a look, unless this
-- delivery was noted before. A row: that order is due now.
-- $1 processor  $2 delivery_key  $3 external_id of the order  $4 SHA-256 of the body
-- $5 a further payment of the order, or empty
with noted as (
  insert into payment_hooks (processor, delivery_key, external_id, body_sha256, deposit_id)
  values ($1, $2, $3, $4, $5)
  on conflict (processor, delivery_key) do nothing
  returning processor
)
update payment_orders
set hook_at = now(), next_look_at = least(next_look_at, now())
where processor = $1 and external_id = $3 and exists (select 1 from noted)
returning order_id;
