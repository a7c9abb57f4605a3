-- name: ChangeKeyLimits :run
-- Sets those limits of keys of one pool whose flag is true, and notes each that changes, as
-- NoteLimitChanges does. A budget knows what runs while it has a limit. The caller has locked the
-- pool.
-- :day_limit?
-- :week_limit?
-- :month_limit?
-- :total_limit?
-- :running_limit?
with next as materialized (
  select payer, spent, day_limit as day_before, week_limit as week_before,
    month_limit as month_before, total_limit as total_before,
    case when :has_day::boolean then :day_limit::bigint else day_limit end as day_limit,
    case when :has_week::boolean then :week_limit::bigint else week_limit end as week_limit,
    case when :has_month::boolean then :month_limit::bigint else month_limit end as month_limit,
    case when :has_total::boolean then :total_limit::bigint else total_limit end as total_limit,
    case when :has_running::boolean then :running_limit::integer else running_limit end
      as running_limit
  from budgets
  where account_id = :account_id and "family" = :family and payer = any(:key_ids::text[])
), noted as (
  insert into limit_changes (account_id, "family", payer, "window", changed_at, passed)
  select :account_id, :family, n.payer, w.name, clock_timestamp(),
    case when w.next > w.most then n.spent end
  from next n
  cross join lateral (
    values ('day', n.day_before, n.day_limit), ('week', n.week_before, n.week_limit),
      ('month', n.month_before, n.month_limit), ('total', n.total_before, n.total_limit)
  ) as w (name, most, next)
  where w.next is distinct from w.most
  on conflict (account_id, "family", payer, "window") do update
  set changed_at = excluded.changed_at, passed = excluded.passed
), running as (
  select key_id, sum(amount)::bigint as held, count(*)::integer as requests
  from holds
  where account_id = :account_id and "family" = :family and key_id = any(:key_ids)
  group by key_id
)
update budgets b
set day_limit = n.day_limit, week_limit = n.week_limit, month_limit = n.month_limit,
  total_limit = n.total_limit, running_limit = n.running_limit,
  held = case when l.is_limited then coalesce(r.held, 0) else 0 end,
  running = case when l.is_limited then coalesce(r.requests, 0) else 0 end
from next n
left join running r on r.key_id = n.payer
cross join lateral (
  select coalesce(n.day_limit, n.week_limit, n.month_limit, n.total_limit, n.running_limit)
    is not null as is_limited
) l
where b.account_id = :account_id and b."family" = :family and b.payer = n.payer;

-- name: SumKeyDays :many timeout_ms=5000
-- What keys of an account were charged on the last UTC days up to today, by the day of admission:
-- closed days from their sums, the others from their hours. No row: nothing.
with days as (
  select (now() at time zone 'utc')::date - :days::int + 1 as first,
    (now() at time zone 'utc')::date as today,
    -- It may be far behind where days are not closed yet.
    greatest((select closed_to from usage_progress),
      (now() at time zone 'utc')::date - :days + 1) as closed_to
)
select u.key_id as "key_id!", u.day - d.first as "place!", sum(u.amount)::bigint as "amount!"
from days d
cross join lateral (
  select key_id, day, amount
  from usage_daily
  where account_id = :account_id and day >= d.first and day < d.closed_to
    and key_id = any(:key_ids::text[])
  union all
  select key_id, (hour at time zone 'utc')::date, amount
  from usage_hourly
  where account_id = :account_id and hour >= d.closed_to::timestamp at time zone 'utc'
    and key_id = any(:key_ids)
) u
where u.day between d.first and d.today
group by 1, 2
order by 1, 2;
