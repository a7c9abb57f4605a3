-- name: NoteLimitChanges :run
-- Notes which limits of credits of a payer's budget change, before they do, and what it has spent
-- in all by then where one is raised. The caller has locked the pool.
-- :payer  empty: the whole pool
-- :day_limit?
-- :week_limit?
-- :month_limit?
-- :total_limit?
insert into limit_changes (account_id, "family", payer, "window", changed_at, passed)
select :account_id, :family, :payer, w.name, clock_timestamp(),
  case when w.next > w.most then b.spent end
from (
  select spent, day_limit, week_limit, month_limit, total_limit
  from budgets
  where account_id = :account_id and "family" = :family and payer = :payer
  union all
  select spent, day_limit, week_limit, month_limit, total_limit
  from pools
  where account_id = :account_id and "family" = :family and :payer = ''
) b
cross join lateral (
  values ('day', b.day_limit, :day_limit::bigint), ('week', b.week_limit, :week_limit::bigint),
    ('month', b.month_limit, :month_limit::bigint), ('total', b.total_limit, :total_limit::bigint)
) as w (name, most, next)
where w.next is distinct from w.most
on conflict (account_id, "family", payer, "window") do update
set changed_at = excluded.changed_at, passed = excluded.passed;
