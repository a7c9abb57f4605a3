-- Sums what accounts were charged since a UTC day: of days that are closed from the days, of the
-- others from their hours.
-- $1 account_ids  $2 the first day
select account_id, sum(amount)::bigint as amount
from (
  select u.account_id, u.amount
  from usage_daily u
  cross join usage_progress g
  where u.account_id = any($1::text[]) and u.day >= $2::date and u.day < g.closed_to
  union all
  select u.account_id, u.amount
  from usage_hourly u
  cross join usage_progress g
  where u.account_id = any($1::text[])
    and u.hour >= greatest($2::date, g.closed_to)::timestamp at time zone 'utc'
) used
group by account_id;
