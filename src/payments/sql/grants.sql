-- timeout_ms=5000

-- name: InsertGrant :many
-- Stores the difference between what an order is to be granted and what it was. Bonuses that needed
-- it as a purchase go while less than that is left, but for those that a refund took. No row: there
-- is no difference. The caller has locked the order.
-- :purchase_micro  what such a purchase has at least
with granted as (
  select count(*) as rows, coalesce(sum(micro), 0) as micro,
    coalesce(sum(bonus_micro), 0) as bonus_micro
  from payment_grants
  where order_id = :order_id
), taken as (
  select coalesce(sum(micro), 0) as micro
  from payment_refunds
  where order_id = :order_id and state not in ('refused', 'cancelled')
), bonus as (
  select coalesce(sum(p.bonus_micro), 0) as micro
  from promotion_uses u
  join promotions p on p.code_id = u.code_id
  where u.order_id = :order_id and u.refund_n is null
), due as (
  select :target_micro::bigint - g.micro as micro, 0 as bonus_micro from granted g
  union all
  select 0, -g.bonus_micro
    - case when :target_micro - t.micro < :purchase_micro::bigint then b.micro else 0 end
  from granted g, taken t, bonus b
)
insert into payment_grants (order_id, n, micro, bonus_micro)
select :order_id, g.rows + row_number() over (order by d.bonus_micro <> 0), d.micro, d.bonus_micro
from due d, granted g
where d.micro <> 0 or d.bonus_micro <> 0
returning n, micro;

-- name: InsertRefund :one
-- Begins a refund, and counts it in its order. The caller has locked the order.
-- :external_id?  the deposit that goes back whole; null: an amount
-- :state payment_refunds.state
with counted as (
  update payment_orders set refunded_usd_micro = refunded_usd_micro + :usd_micro
  where order_id = :order_id
)
insert into payment_refunds (order_id, n, usd_micro, external_id, micro, state, reason, made_by,
  bonus_micro)
select :order_id, count(*) + 1, :usd_micro::bigint, :external_id, :micro::bigint, :state, :reason,
  :made_by, :bonus_micro::bigint
from payment_refunds
where order_id = :order_id
returning n;

-- name: ListGranted :many
-- Lists what was granted for an order, oldest first, without what was taken back. A micro-dollar is
-- 200 micro-credits.
select micro, micro / 200 as "usd_micro!", created_at
from payment_grants
where order_id = :order_id and micro > 0
order by n;

-- name: ListUnposted :many
-- Lists the grants of an order without a transfer, oldest first.
select g.n, g.micro + g.bonus_micro as "micro!", o.account_id, o."family"
from payment_grants g
join payment_orders o on o.order_id = g.order_id
where g.order_id = :order_id and g.transfer_id is null
order by g.n;

-- name: ListRefunds :many
-- Lists the refunds of some orders.
select order_id, n, usd_micro, external_id, micro, bonus_micro, state, "transaction", reason,
  made_by, created_at, ended_at
from payment_refunds
where order_id = any(:order_ids::text[])
order by order_id, n;

-- name: PutTransfer :run
-- Stores the transfer of a grant, and the event of the credits that it brought or took. Changes no
-- row: the grant has its transfer.
with put as (
  update payment_grants set transfer_id = :transfer_id
  where order_id = :order_id and n = :n and transfer_id is null
  returning order_id, n, micro, bonus_micro
)
insert into payment_events (order_id, kind, subject, facts)
select p.order_id,
  case when p.micro + p.bonus_micro > 0 then 'payment_credited' else 'payment_lost' end,
  p.n::text,
  jsonb_strip_nulls(jsonb_build_object(
    'transfer_id', :transfer_id::text,
    'microcredits', abs(p.micro + p.bonus_micro)::text,
    'usd_micro', case when p.micro <> 0 then (abs(p.micro) / 200)::text end,
    'of', case when p.micro = 0 then 'bonus' end,
    'document', (
      select d.number from payment_documents d
      where d.order_id = p.order_id
        and case when p.micro > 0 then d.kind = 'receipt' else d.grant_n = p.n end
    ),
    'atoms', (
      select sum(d.atoms)::text from payment_deposits d
      where d.order_id = p.order_id and d.asset = o.asset and d.network = o.network
        and d.state = 'settled'
    ),
    'tx', (
      select min(t.tx) from payment_transactions t
      where t.processor = o.processor and t.external_id = (
        select d.external_id from payment_deposits d
        where d.order_id = p.order_id and d.settled_at is not null
          and (d.state = 'lost') = (p.micro < 0)
        order by d.settled_at desc, d.external_id
        limit 1
      )
    )
  ))
from put p
join payment_orders o on o.order_id = p.order_id
on conflict do nothing;

-- name: MoveRefund :optional
-- Moves a refund to another state. No row: it is in another one than expected. A refund that ends
-- without money is not counted in its order any more. The caller has locked the order.
-- :from payment_refunds.state
-- :to payment_refunds.state
-- :transfer_id?
-- :cancel_transfer_id?
-- :transaction?  of the person who sent the coins
with moved as (
  update payment_refunds
  set state = :to, transfer_id = coalesce(:transfer_id, transfer_id),
    cancel_transfer_id = coalesce(:cancel_transfer_id, cancel_transfer_id),
    "transaction" = coalesce(:transaction, "transaction"),
    ended_at = case when :to in ('refused', 'completed', 'cancelled') then now() end
  where order_id = :order_id and n = :n and state = :from
  returning usd_micro, n
), counted as (
  update payment_orders o
  set refunded_usd_micro = refunded_usd_micro - m.usd_micro
  from moved m
  where o.order_id = :order_id and :to in ('refused', 'cancelled')
)
select n from moved;
