-- Leases the orders that are to be looked at now: those with a webhook first, then those with an
-- open page, then the others. At most one look a second for each slot of a processor, over all
-- nodes. The highest slot is kept for webhooks. Returns also, if asked for, the orders with grants
-- or refunds without a transfer, and the uses of promotions without one: code_id and, as
-- external_id, the account.
-- $1 processors  $2 looks of one processor at most: its slots  $3 lease in milliseconds
-- $4 true: also list what is not posted
with due as (
  select o.order_id, o.processor,
    row_number() over (
      partition by o.processor
      order by o.hook_at, o.page_open_until <= now() or o.page_open_until is null, o.next_look_at
    ) as place,
    count(o.hook_at) over (partition by o.processor) as hooks
  from unnest($1::text[]) as p (processor)
  cross join lateral (
    select order_id, processor, hook_at, page_open_until, next_look_at
    from payment_orders
    where processor = p.processor and next_look_at <= now()
      and (lease_until is null or lease_until < now())
    order by hook_at, page_open_until <= now() or page_open_until is null, next_look_at
    limit $2
    for update skip locked
  ) o
), free as (
  select s.processor, s.slot,
    row_number() over (partition by s.processor order by s.slot desc) as place,
    max(s.slot) over (partition by s.processor) as highest
  from (
    select processor, slot
    from payment_look_slots
    where processor = any($1) and slot <= $2 and used_at <= now() - interval '1 second'
      and exists (select from due)
    for update skip locked
  ) s
), chosen as (
  select due.order_id, free.processor, free.slot
  from due
  join free on free.processor = due.processor and free.place = due.place
    + case when due.hooks = 0 and free.highest = $2 then 1 else 0 end
), used as (
  update payment_look_slots s
  set used_at = now()
  from chosen c
  where s.processor = c.processor and s.slot = c.slot
), leased as (
  update payment_orders o
  set lease_until = now() + $3::integer * interval '1 millisecond'
  from chosen c
  where o.order_id = c.order_id
  returning o.order_id, o.processor, o.external_id
)
select 'look' as work, order_id, processor, external_id, now() as started_at from leased
union all
select 'post', order_id, '', '', now()
from (
  select order_id from payment_grants where $4::boolean and transfer_id is null
  union
  select order_id from payment_refunds where $4 and state in ('asked', 'cancelling')
  limit 100
) unposted
union all
(
  select 'bonus', code_id, '', account_id, now()
  from promotion_uses
  where $4 and transfer_id is null
  limit 100
);
