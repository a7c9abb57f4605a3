-- timeout_ms=5000

-- name: InsertOrder :run
-- Stores an order that its processor has still to open. Until then it counts as open for a minute.
insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro, processor,
  method, asset, network, decimals, created_by, seller_id, seller_name, seller_address,
  seller_tax_id, buyer_name, buyer_address, buyer_tax_id, quoted_until, watched_until)
values (:order_id, :account_id, :family, :idempotency_key, :usd_micro, :processor,
  :method, :asset, :network, :decimals, :created_by, :seller_id, :seller_name, :seller_address,
  :seller_tax_id, :buyer_name, :buyer_address, :buyer_tax_id,
  now() + interval '1 minute', now() + interval '1 minute');

-- name: InsertDirect :run
-- Stores an order for what arrived without one. Changes no row: it was stored before.
insert into payment_orders (order_id, account_id, "family", idempotency_key, kind, usd_micro,
  processor, method, asset, network, decimals, external_id, quoted_atoms, rate, pay_to, created_by,
  seller_id, seller_name, seller_address, seller_tax_id, buyer_name, buyer_address, buyer_tax_id,
  quoted_until, watched_until, next_look_at)
values (:order_id, :account_id, :family, :idempotency_key, 'direct', :usd_micro,
  :processor, :method, :asset, :network, :decimals, :external_id, :atoms, :rate, :pay_to,
  :created_by, :seller_id, :seller_name, :seller_address, :seller_tax_id, :buyer_name,
  :buyer_address, :buyer_tax_id, :quoted_until,
  now() + :watched_for_ms::bigint * interval '1 millisecond', now())
on conflict (account_id, idempotency_key) do nothing;

-- name: LockAccount :run
-- Locks an account until the end of the transaction, so that its orders are counted one by one.
insert into payment_accounts (account_id) values (:account_id)
on conflict (account_id) do update set account_id = excluded.account_id;

-- name: ReadOrders :many
-- Reads orders, in any order, with what was granted for each and what refunds took back, and the
-- events that are stored of it, each as its kind and what it is of.
select
  order_id, account_id, "family", idempotency_key, kind, usd_micro, processor, method, asset,
  network, decimals, external_id, quoted_atoms, rate, pay_to, memo, checkout_url, state,
  cancelled_at, attention, faults, handled, rule_micro, refunded_usd_micro, receipt_number,
  created_by, created_at, quiet_before, quoted_until, watched_until, next_look_at, looked_at,
  failed_looks, hook_at, page_open_until, version, now() as "read_at!",
  (select coalesce(sum(g.micro), 0)::bigint from payment_grants g where g.order_id = o.order_id)
    as "granted_micro!",
  (select coalesce(sum(r.micro), 0)::bigint from payment_refunds r
   where r.order_id = o.order_id and r.state not in ('refused', 'cancelled'))
    as "taken_back_micro!",
  array(select e.kind || ':' || e.subject from payment_events e where e.order_id = o.order_id)
    as "events!"
from payment_orders o
where order_id = any(:order_ids::text[]);

-- name: FindOrderByKey :optional
-- Finds the order that an account made with an idempotency key.
select order_id from payment_orders
where account_id = :account_id and idempotency_key = :idempotency_key;

-- name: FindPaidOrder :optional
-- Finds the first order of an account and pool of which at least so many credits are left: granted
-- for money, and not taken back by a refund that has begun.
select o.order_id
from payment_orders o
where o.account_id = :account_id and o."family" = :family
  and (select coalesce(sum(g.micro), 0) from payment_grants g where g.order_id = o.order_id)
    - (select coalesce(sum(r.micro), 0) from payment_refunds r
       where r.order_id = o.order_id and r.state not in ('refused', 'cancelled')) >= :micro
order by o.order_id
limit 1;

-- name: ReadVersions :many
-- Reads the versions of orders that somebody watches.
select order_id, version from payment_orders where order_id = any(:order_ids::text[]);

-- name: HasWork :one
-- True if `TakeWork` would find something, or lacks only a slot. Asked each second, since it takes
-- a tenth of the time.
select exists (
    select from payment_orders
    where processor = any(:processors::text[]) and next_look_at <= now()
      and (lease_until is null or lease_until < now())
  ) or :with_unposted::boolean and (
    exists (select from payment_grants where transfer_id is null)
    or exists (select from payment_refunds where state in ('asked', 'cancelling'))
    or exists (select from promotion_uses where transfer_id is null)
  ) as "has_work!";

-- name: IsAwaited :one
-- Tells what is awaited on a chain: open orders of a coin, and payments in no block.
select exists (
  select from payment_orders
  where processor = :processor and network = :chain and asset = :asset and external_id is not null
    and state in ('open', 'seen') and quoted_until > now() - interval '15 minutes'
) as "order!", exists (
  select from chain_payments
  where processor = :processor and chain = :chain and height is null and state <> 'lost'
) as "payment!";

-- name: CountOrders :one
-- Counts the orders that an account has open, and those of the last hour with the first of them;
-- and says if money has ever arrived for one of its orders.
select
  count(*) filter (
    where state in ('open', 'seen') and (state = 'seen' or quoted_until > now())
  )::integer as "open!",
  count(*) filter (where created_at > now() - interval '1 hour')::integer as "made!",
  min(created_at) filter (where created_at > now() - interval '1 hour') as "first_at?",
  exists (
    select from payment_grants g
    join payment_orders paid on paid.order_id = g.order_id
    where paid.account_id = :account_id and g.micro > 0
  ) as "has_paid!"
from payment_orders
where account_id = :account_id and kind = 'pack';

-- name: CountWaiting :many
-- Counts the orders that wait for a person, by account.
select account_id, count(*)::integer as "orders!"
from payment_orders
where attention is not null and external_id is not null
group by account_id
order by account_id desc
limit :rows;

-- name: ListUndecided :many
-- Lists the orders of all accounts that wait for a person, oldest first.
-- :after?  the last one of the page before
select order_id from payment_orders
where attention is not null and external_id is not null
  and (:after::text is null or order_id > :after)
order by order_id
limit :rows;

-- name: FindOrders :many
-- Finds the orders that their processor has opened and that match a filter, newest first, with
-- their buyers and the transactions that paid them. `ReadOrders` has the rest.
-- :account_id?  null: of all accounts
-- :states?  null: in any
-- :processor?  null: of any
-- :asset?  null: any
-- :to?  exclusive; null: up to now
-- :least_usd_micro  of the pack
-- :after?  the last one of the page before
-- :first  an id below those of the range
-- :last  an id above those of the range
select order_id, buyer_name, buyer_tax_id,
  (select array_agg(t.tx order by t.tx)
   from payment_deposits d
   join payment_transactions t on t.processor = d.processor and t.external_id = d.external_id
   where d.order_id = o.order_id) as "transactions?"
from payment_orders o
where (:account_id::text is null or account_id = :account_id)
  and (:states::text[] is null or state = any(:states::text[]))
  and (not :needs_attention::boolean or attention is not null)
  and (:processor::text is null or processor = :processor)
  and (:asset::text is null or asset = :asset)
  and created_at >= :from and (:to::timestamptz is null or created_at < :to)
  and usd_micro >= :least_usd_micro
  and order_id > :first and order_id < :last and (:after::text is null or order_id < :after)
  and external_id is not null
order by order_id desc
limit :rows;

-- name: SumOrders :one
-- Sums the orders that match a filter, as `FindOrders` finds them.
-- :account_id?  null: of all accounts
-- :states?  null: in any
-- :processor?  null: of any
-- :asset?  null: any
-- :to?  exclusive; null: up to now
-- :least_usd_micro  of the pack
-- :first  an id below those of the range
-- :last  an id above those of the range
select count(*) as "orders!", coalesce(sum(usd_micro), 0)::bigint as "ordered_usd_micro!",
  coalesce(sum(refunded_usd_micro), 0)::bigint as "refunded_usd_micro!",
  coalesce(sum(
    (select coalesce(sum(g.micro), 0) from payment_grants g where g.order_id = o.order_id)
    - (select coalesce(sum(r.micro), 0) from payment_refunds r
       where r.order_id = o.order_id and r.state not in ('refused', 'cancelled'))
  ), 0)::bigint as "granted_micro!"
from payment_orders o
where (:account_id::text is null or account_id = :account_id)
  and (:states::text[] is null or state = any(:states::text[]))
  and (not :needs_attention::boolean or attention is not null)
  and (:processor::text is null or processor = :processor)
  and (:asset::text is null or asset = :asset)
  and created_at >= :from and (:to::timestamptz is null or created_at < :to)
  and usd_micro >= :least_usd_micro
  and order_id > :first and order_id < :last
  and external_id is not null;

-- name: ListOpenOthers :many
-- Lists the open orders of an account and pool on some networks, but for one.
select order_id from payment_orders
where processor = :processor and account_id = :account_id and "family" = :family
  and network = any(:networks::text[])
  and order_id <> :order_id and state = 'open' and external_id is not null;

-- name: LockOrder :optional
-- Locks an order until the end of the transaction. Read it with the next statement: what this one
-- waited for is not in its own snapshot.
select order_id from payment_orders where order_id = :order_id for update;

-- name: LeaseOpening :run
-- Takes the right to let the processor open an order. Changes no row: it is open, or somebody else
-- has the right.
update payment_orders
set lease_until = now() + :lease_ms::integer * interval '1 millisecond'
where order_id = :order_id and external_id is null and (lease_until is null or lease_until < now());

-- name: PutQuote :run
-- Stores the quote of a processor, which begins the watching. Changes no row: the order has one.
-- :rate  micro-dollars of one coin
update payment_orders
set external_id = :external_id, quoted_atoms = :atoms, rate = :rate, pay_to = :pay_to,
  memo = :memo, checkout_url = :checkout_url,
  quoted_until = now() + :quoted_for_ms::bigint * interval '1 millisecond',
  watched_until = now() + :watched_for_ms::bigint * interval '1 millisecond',
  next_look_at = now() + :first_look_ms::bigint * interval '1 millisecond',
  lease_until = null, version = version + 1
where order_id = :order_id and external_id is null;

-- name: FailOpening :run
-- Gives back the right to open an order, which from now on counts as no open one.
update payment_orders
set lease_until = null, quoted_until = now(), watched_until = now()
where order_id = :order_id and external_id is null;

-- name: TakeWork :many
-- Leases the orders that are to be looked at now: those of accounts without a look in two seconds
-- first; of these, those with a webhook, then those with an open page, then the others. At most
-- one look a second for each slot of a processor, over all nodes. The highest slot is kept for
-- webhooks. Returns also, if asked for, the orders with grants or refunds without a transfer, and
-- the uses of promotions without one: the code as `order_id`, and the account as `external_id`.
-- =work 'look' | 'post' | 'bonus'
with due as (
  select o.order_id, o.processor, o.account_id,
    row_number() over (
      partition by o.processor
      order by o.is_recent, o.hook_at, o.page_open_until <= now() or o.page_open_until is null,
        o.next_look_at
    ) as place,
    count(o.hook_at) over (partition by o.processor) as hooks
  from unnest(:processors::text[]) as p (processor)
  cross join lateral (
    select order_id, processor, account_id, hook_at, page_open_until, next_look_at,
      account_id in (
        select s.account_id from payment_look_slots s
        where s.processor = p.processor and s.account_id is not null
          and s.used_at > now() - interval '2 seconds'
      ) as is_recent
    from payment_orders
    where processor = p.processor and next_look_at <= now()
      and (lease_until is null or lease_until < now())
    order by is_recent, hook_at, page_open_until <= now() or page_open_until is null, next_look_at
    limit :slots
    for update skip locked
  ) o
), free as (
  select s.processor, s.slot,
    row_number() over (partition by s.processor order by s.slot desc) as place,
    max(s.slot) over (partition by s.processor) as highest
  from (
    select processor, slot
    from payment_look_slots
    where processor = any(:processors) and slot <= :slots and used_at <= now() - interval '1 second'
      and exists (select from due)
    for update skip locked
  ) s
), chosen as (
  select due.order_id, due.account_id, free.processor, free.slot
  from due
  join free on free.processor = due.processor and free.place = due.place
    + case when due.hooks = 0 and free.highest = :slots then 1 else 0 end
), used as (
  update payment_look_slots s
  set used_at = now(), account_id = c.account_id
  from chosen c
  where s.processor = c.processor and s.slot = c.slot
), leased as (
  update payment_orders o
  set lease_until = now() + :lease_ms::integer * interval '1 millisecond'
  from chosen c
  where o.order_id = c.order_id
  returning o.order_id, o.processor, o.external_id, coalesce(o.hook_at::text, '') as hook
)
select 'look' as "work!", order_id as "order_id!", processor as "processor!",
  external_id as "external_id!", now() as "started_at!", hook as "hook!"
from leased
union all
select 'post', order_id, '', '', now(), ''
from (
  select order_id from payment_grants where :with_unposted::boolean and transfer_id is null
  union
  select order_id from payment_refunds where :with_unposted and state in ('asked', 'cancelling')
  limit 100
) unposted
union all
(
  select 'bonus', code_id, '', account_id, now(), ''
  from promotion_uses
  where :with_unposted and transfer_id is null
  limit 100
);

-- name: UpdateOrder :run
-- Stores what was decided about an order. The caller has locked it.
-- :attention?  null: no person has to look
-- :is_look  true: a look has ended; false: a person changed something
-- :hook?  what hook_at was when the look that was answered began; null: none was answered
-- :looked_at?  the moment that its answer is true of
-- :next_look_ms?  null: the order is watched no more
update payment_orders
set state = :state, attention = :attention, faults = :faults, rule_micro = :rule_micro,
  lease_until = case when not :is_look::boolean then lease_until end,
  looked_at = greatest(looked_at, :looked_at::timestamptz), failed_looks = :failed_looks,
  -- A webhook that came during the look asks for another one.
  hook_at = case when coalesce(hook_at::text, '') is distinct from :hook::text then hook_at end,
  next_look_at = case
    when coalesce(hook_at::text, '') <> :hook then now()
    when :next_look_ms::bigint is null then null
    when :is_look then now() + :next_look_ms * interval '1 millisecond'
    else least(next_look_at, now() + :next_look_ms * interval '1 millisecond')
  end,
  version = version + 1
where order_id = :order_id;

-- name: CancelOrder :run
-- Cancels an order. The caller has locked it.
update payment_orders set cancelled_at = now() where order_id = :order_id;

-- name: ReopenOrder :run
-- Lets the quote of an order stand again. The caller has locked it.
update payment_orders
set cancelled_at = null,
  quoted_until = now() + :quoted_for_ms::integer * interval '1 millisecond',
  watched_until = greatest(watched_until, now() + interval '1 day')
where order_id = :order_id;

-- name: SetReceiptNumber :run
-- Notes the number of the receipt with its order.
update payment_orders set receipt_number = :number
where order_id = :order_id and receipt_number is null;

-- name: HandleFacts :run
-- Records that a person has dealt with facts of an order. The caller has locked it.
update payment_orders
set handled = array(select distinct unnest(handled || :facts::text[]) order by 1)
where order_id = :order_id;

-- name: RestoreFacts :run
-- Leaves as dealt with only what was decided: a refund that was given up dealt with nothing. The
-- caller has locked the order.
update payment_orders
set handled = array(
  select distinct fact
  from payment_decisions d
  cross join lateral unnest(d.facts) as fact
  where d.order_id = :order_id
  order by 1
)
where order_id = :order_id;

-- name: OpenPage :run
-- Records that somebody watches an order, so that it is looked at more often.
update payment_orders
set page_open_until = now() + :open_ms::integer * interval '1 millisecond',
  next_look_at = least(next_look_at,
    greatest(now(), looked_at + :pace_ms::integer * interval '1 millisecond'))
where order_id = :order_id and next_look_at is not null and failed_looks = 0;

-- name: HookOrder :run
-- Asks for a look at an order, at once. Changes no row: the processor has made no such order.
update payment_orders
set hook_at = now(), next_look_at = now()
where processor = :processor and external_id = :external_id;

-- name: ListOpened :many
-- Lists the orders that a processor has opened under some of its ids.
select order_id, external_id as "external_id!", account_id, pay_to
from payment_orders
where processor = :processor and external_id = any(:external_ids::text[]);

-- name: LookAgain :run
-- Asks for a look at orders, at once. Changes no row of an order that is closed, or is watched no
-- more: what it waited for has come, or a person has decided.
update payment_orders
set hook_at = now(), next_look_at = now()
where order_id = any(:order_ids::text[]) and state <> 'closed' and next_look_at is not null;

-- name: HookChanged :run
-- Asks for a look at the orders of payments that changed.
update payment_orders
set hook_at = now(), next_look_at = now()
where order_id in (
  select order_id from chain_payments
  where processor = :processor and external_id = any(:external_ids::text[])
);

-- name: MarkSwept :run
-- Marks the orders of Ether that were open when their address was emptied.
update payment_orders o
set faults = array(select distinct unnest(o.faults || 'swept'::text) order by 1),
  hook_at = now(), next_look_at = now()
from deposit_addresses a
where a.address = :address and a.account_id = o.account_id and a."family" = o."family"
  and o.processor = :processor and o.network = :chain and o.asset = :native
  and o.external_id is not null
  and o.created_at - interval '10 minutes' <= :to and o.quoted_until >= :from;
