-- name: OpenBudget :run
-- Gives a payer its budget, without limits, unless it has one.
insert into budgets (account_id, "family", payer)
values (:account_id, :family, :payer)
on conflict (account_id, "family", payer) do nothing;

-- name: StartManager :run
-- Begins to count what a person or a management key spends of a pool, whose budget has no limit
-- yet: with what their keys were charged in the windows of now, by the hour of admission. The holds
-- of these keys get this manager, unless they have one, and are locked in the order of their ids,
-- as checkpoints do. The caller has locked the pool. Changes no row: the budget has a limit.
with windows as (
  select (now() at time zone 'utc')::date as today,
    date_trunc('day', now(), 'UTC') as day, date_trunc('week', now(), 'UTC') as week,
    date_trunc('month', now(), 'UTC') as month
), managed as materialized (
  select k.key_id
  from keys k
  join budgets b
    on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.managed_by
  where k.account_id = :account_id and k."family" = :family and k.managed_by = :payer
    and not b.is_limited
), ordered as (
  select account_id, request_id
  from holds
  where account_id = :account_id and key_id in (select key_id from managed) and manager is null
  order by request_id
  for update
), taken as (
  update holds
  set manager = :payer
  from ordered
  where holds.account_id = ordered.account_id and holds.request_id = ordered.request_id
), charged as (
  select coalesce(sum(u.amount) filter (where u.hour >= w.day), 0)::bigint as of_day,
    coalesce(sum(u.amount) filter (where u.hour >= w.week), 0)::bigint as of_week,
    coalesce(sum(u.amount) filter (where u.hour >= w.month), 0)::bigint as of_month
  from usage_hourly u
  cross join windows w
  where u.account_id = :account_id and u.hour >= least(w.week, w.month)
    and u.key_id in (select key_id from managed)
)
update budgets b
set day = greatest(b.day, w.today), day_base = b.spent - c.of_day, week_base = b.spent - c.of_week,
  month_base = b.spent - c.of_month, total_base = b.spent
from windows w
cross join charged c
where b.account_id = :account_id and b."family" = :family and b.payer = :payer
  and not b.is_limited;

-- name: SetLimits :run
-- Replaces the limits of a payer's budget, which knows what runs while it has one. The total of a
-- person or a management key begins with its limit, that of a key with the key. The caller has
-- locked the pool. Changes no row: it has no budget.
-- :day_limit?
-- :week_limit?
-- :month_limit?
-- :total_limit?
-- :running_limit?
update budgets
set day_limit = :day_limit, week_limit = :week_limit, month_limit = :month_limit,
  total_limit = :total_limit, running_limit = :running_limit,
  held = counted.held, running = counted.running,
  total_base = case
    when total_limit is null and :total_limit::bigint is not null and strpos(payer, ':') > 0
    then spent else total_base end
from (
  select coalesce(sum(amount), 0)::bigint as held, count(*)::integer as running
  from holds
  where account_id = :account_id and "family" = :family and :payer in (key_id, manager)
    and coalesce(:day_limit::bigint, :week_limit::bigint, :month_limit::bigint,
      :total_limit::bigint, :running_limit::integer) is not null
) counted
where account_id = :account_id and "family" = :family and payer = :payer;

-- name: SetPoolLimits :run
-- The same of a whole pool. Its total begins with its limit.
-- :day_limit?
-- :week_limit?
-- :month_limit?
-- :total_limit?
-- :running_limit?
update pools
set day_limit = :day_limit, week_limit = :week_limit, month_limit = :month_limit,
  total_limit = :total_limit, running_limit = :running_limit,
  total_base = case when total_limit is null and :total_limit::bigint is not null
    then spent else total_base end
where account_id = :account_id and "family" = :family;

-- name: ResetTotal :run
-- Begins the total of a payer anew. What runs counts after it. The caller has locked the pool.
-- Changes no row: it has no budget.
update budgets
set total_base = spent
where account_id = :account_id and "family" = :family and payer = :payer;

-- name: ResetPoolTotal :run
-- The same of a whole pool.
update pools
set total_base = spent
where account_id = :account_id and "family" = :family;

-- name: ReadBudgets :many
-- Reads budgets of an account that are not those of keys, with the time of this, in the order of
-- payer and family: of its pools, which have an empty payer, of persons and management keys with a
-- limit, and of others with keys what these were charged, by the hour of admission.
-- :after_payer  of the last row of the page before; empty: from the first
-- :after_family  of the same row
-- =family pools.family
select payer as "payer!", "family" as "family!", now() as "at!",
  array[day - date '1970-01-01', spent, held, running, day_base, week_base, month_base, total_base,
    coalesce(day_limit, -1), coalesce(week_limit, -1), coalesce(month_limit, -1),
    coalesce(total_limit, -1), coalesce(running_limit, -1)] as "budget!"
from (
  select '' collate "C" as payer, "family", day, spent, held, running, day_base, week_base,
    month_base, total_base, day_limit, week_limit, month_limit, total_limit, running_limit
  from pools
  where account_id = :account_id
  union all
  select payer, "family", day, spent, held, running, day_base, week_base, month_base, total_base,
    day_limit, week_limit, month_limit, total_limit, running_limit
  from budgets b
  where account_id = :account_id and strpos(payer, ':') > 0 and b.is_limited
  union all
  select payer, "family", (now() at time zone 'utc')::date, of_month, 0, 0, of_month - of_day,
    of_month - of_week, 0, of_month, null, null, null, null, null
  from (
    select k.managed_by as payer, k."family",
      coalesce(sum(u.amount) filter (where u.hour >= w.day), 0)::bigint as of_day,
      coalesce(sum(u.amount) filter (where u.hour >= w.week), 0)::bigint as of_week,
      coalesce(sum(u.amount) filter (where u.hour >= w.month), 0)::bigint as of_month
    from (
      select date_trunc('day', now(), 'UTC') as day, date_trunc('week', now(), 'UTC') as week,
        date_trunc('month', now(), 'UTC') as month
    ) w
    cross join keys k
    join (
      -- No more than a page of them: the usage of many keys is long.
      select distinct k.managed_by, k."family"
      from keys k
      where k.account_id = :account_id and k.managed_by <> ''
        and (k.managed_by, k."family") > (:after_payer, :after_family) and not exists (
          select 1
          from budgets b
          where b.account_id = k.account_id and b."family" = k."family" and b.payer = k.managed_by
            and b.is_limited
        )
      order by k.managed_by, k."family"
      limit :rows
    ) page on page.managed_by = k.managed_by and page."family" = k."family"
    left join usage_hourly u
      on u.account_id = k.account_id and u.key_id = k.key_id and u.hour >= least(w.week, w.month)
    where k.account_id = :account_id
    group by k.managed_by, k."family"
  ) unlimited
) b
where (payer, "family") > (:after_payer, :after_family)
order by payer, "family"
limit :rows;

-- name: ReadBudgetsOf :many
-- Reads the budgets of a payer, with the time of this: of a pool, its empty payer.
-- =family pools.family
select "family" as "family!", now() as "at!",
  array[day - date '1970-01-01', spent, held, running, day_base, week_base, month_base, total_base,
    coalesce(day_limit, -1), coalesce(week_limit, -1), coalesce(month_limit, -1),
    coalesce(total_limit, -1), coalesce(running_limit, -1)] as "budget!"
from (
  select '' as payer, "family", day, spent, held, running, day_base, week_base, month_base,
    total_base, day_limit, week_limit, month_limit, total_limit, running_limit
  from pools
  where account_id = :account_id
  union all
  select payer, "family", day, spent, held, running, day_base, week_base, month_base, total_base,
    day_limit, week_limit, month_limit, total_limit, running_limit
  from budgets
  where account_id = :account_id
) b
where payer = :payer
order by "family";

-- name: ShareManager :optional
-- Who manages a key, as `managed_by`, and whether its limits are an owner's, until the end of the
-- transaction. No row: there is no such key.
select managed_by, limited_by_owner and not limited_by_program as "is_owners!"
from keys
where key_id = :key_id
for share;
