-- name: FindLowPools :many
-- Finds the pools with fewer free credits than a bound. filled_by is the last transfer after which
-- the pool had at least the bound; null: it never had. A pool that was never filled is left out.
-- :families pools.family[]
-- :bounds  in micro-credits
select p.account_id, p."family", w.below as "below_micro!", p.posted - p.held as "free_micro!",
  (
    select t.transfer_id
    from transfers t
    where t.account_id = p.account_id and t."family" = p."family" and t.amount > 0
      and t.posted_after >= w.below
    order by t.transfer_id desc
    limit 1
  ) as "filled_by?"
from unnest(:account_ids::text[], :families::text[], :bounds::bigint[])
  as w (account_id, "family", below)
join pools p on p.account_id = w.account_id and p."family" = w."family"
where p.posted - p.held < w.below
  and exists (
    select 1
    from transfers t
    where t.account_id = p.account_id and t."family" = p."family" and t.amount > 0
  );

-- name: ReadPools :many
-- Reads both pools of an account. No row: no such account.
select "family", posted, held from pools where account_id = :account_id order by "family";

-- name: ReadAccountsPools :many
-- Reads the pools of accounts.
select account_id, "family", posted, held
from pools
where account_id = any(:account_ids::text[])
order by account_id, "family";

-- name: ReadSpending :many
-- Reads what each pool of an account has free and held, what was charged to it on the last full UTC
-- days, since when it is used: the first of these days or today, or `used_before`; what it had
-- after it was last filled; and its budget.
-- :days  how many full days
select p."family" as "family!", p.posted - p.held as "free!", p.held as "held!",
  coalesce(s.amount, 0)::bigint as "amount!", s.first_day as "first_day?",
  b.used_before as "used_before!", f.filled_to as "filled_to?",
  (now() at time zone 'utc')::date as "today!", now() as "at!",
  array[p.day - date '1970-01-01', p.spent, p.held, p.running, p.day_base, p.week_base,
    p.month_base, p.total_base, coalesce(p.day_limit, -1), coalesce(p.week_limit, -1),
    coalesce(p.month_limit, -1), coalesce(p.total_limit, -1),
    coalesce(p.running_limit, -1)] as "budget!"
from pools p
left join (
  select k."family", (min(u.hour) at time zone 'utc')::date as first_day,
    sum(u.amount) filter (where u.hour < date_trunc('day', now(), 'UTC')) as amount
  from usage_hourly u
  join keys k on k.account_id = u.account_id and k.key_id = u.key_id
  where u.account_id = :account_id
    and u.hour >= date_trunc('day', now(), 'UTC') - :days::integer * interval '1 day'
  group by k."family"
) s using ("family")
cross join usage_progress g
cross join lateral (
  select exists (
    select 1
    from usage_hourly u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = :account_id and k."family" = p."family"
      and u.hour < date_trunc('day', now(), 'UTC') - :days::integer * interval '1 day'
      -- The closed days have the hours before: of a family without use, all of them are looked at.
      and u.hour >= g.closed_to::timestamp at time zone 'utc'
  ) or exists (
    select 1
    from usage_daily u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = :account_id and k."family" = p."family"
      and u.day < (now() at time zone 'utc')::date - :days::integer
  ) as used_before
) b
left join lateral (
  select t.posted_after as filled_to
  from transfers t
  where t.account_id = :account_id and t."family" = p."family" and t.amount > 0
  order by t.transfer_id desc
  limit 1
) f on true
where p.account_id = :account_id
order by p."family";

-- name: ListDebts :many
-- Lists the accounts with a pool in debt, and what its pools lack together.
select account_id, sum(greatest(held - posted, 0))::bigint as "debt!"
from pools
where in_debt
group by account_id
order by account_id desc
limit :rows;

-- name: LockAccountPools :many
-- Locks both pools of an account: no request of it is admitted meanwhile.
select "family", posted, held, in_debt
from pools
where account_id = :account_id
order by "family"
for update;

-- name: LockPool :optional
-- Locks the pool of a transfer or of a hold to release. No row: no such account.
-- =account_status accounts.status
select posted, held, in_debt, account_status
from pools
where account_id = :account_id and "family" = :family
for update;

-- name: PostToPool :run
-- Adds a transfer to its pool. The caller has locked the pool. A pool is in debt while it has less
-- than its running requests hold.
-- :amount  signed
update pools
set posted = posted + :amount, in_debt = posted + :amount < held
where account_id = :account_id and "family" = :family;

-- name: SetPoolsStatus :run
-- Copies the status of an account to its pools, which the caller has locked.
-- :status accounts.status
update pools set account_status = :status where account_id = :account_id;
