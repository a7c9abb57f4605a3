-- timeout_ms=5000

-- name: EnsureSlots :run
-- Gives a processor its slots for looks.
insert into payment_look_slots (processor, slot, used_at)
select :processor, slot, now() - interval '1 hour' from generate_series(1, :slots::integer) as slot
on conflict (processor, slot) do nothing;

-- name: ListNamed :many
-- Lists the further payments of an order that webhooks named.
select distinct deposit_id
from payment_hooks
where processor = :processor and external_id = :external_id and deposit_id <> ''
order by 1;

-- name: ReceiveHook :run
-- Notes a delivery of a webhook, and makes the order that it is about due for a look, unless this
-- delivery was noted before. Changes a row: that order is due now.
-- :external_id  the order at the processor
-- :deposit_id  a further payment of it, which only webhooks name; empty: none
with noted as (
  insert into payment_hooks (processor, delivery_key, external_id, body_sha256, deposit_id)
  values (:processor, :delivery_key, :external_id, :body_sha256, :deposit_id)
  on conflict (processor, delivery_key) do nothing
  returning processor
)
update payment_orders
set hook_at = now(), next_look_at = least(next_look_at, now())
where processor = :processor and external_id = :external_id and exists (select 1 from noted);

-- name: RemoveHooks :run
-- Removes the deliveries of more than 90 days ago.
delete from payment_hooks where received_at < now() - interval '90 days';
