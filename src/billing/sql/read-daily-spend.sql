-- Sums what was charged to the pools of accounts on the last full UTC days, with the number of days
-- for which it stands: all of them, or those since the first use. As read-spending.sql does for one
-- account. No row: the pool was not used.
-- $1 account_ids  $2 number of full days
select s.account_id, s."family", s.amount,
  case when exists (
    select 1
    from usage_hourly u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = s.account_id and k."family" = s."family"
      and u.hour < date_trunc('day', now(), 'UTC') - $2::integer * interval '1 day'
      and u.hour >= (select closed_to from usage_progress)::timestamp at time zone 'utc'
  ) or exists (
    select 1
    from usage_daily u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = s.account_id and k."family" = s."family"
      and u.day < (now() at time zone 'utc')::date - $2::integer
  ) then $2::integer else (now() at time zone 'utc')::date - s.first_day end as days
from (
  select u.account_id, k."family", (min(u.hour) at time zone 'utc')::date as first_day,
    sum(u.amount)::bigint as amount
  from usage_hourly u
  join keys k on k.account_id = u.account_id and k.key_id = u.key_id
  where u.account_id = any($1::text[])
    and u.hour < date_trunc('day', now(), 'UTC')
    and u.hour >= date_trunc('day', now(), 'UTC') - $2::integer * interval '1 day'
  group by u.account_id, k."family"
) s;
