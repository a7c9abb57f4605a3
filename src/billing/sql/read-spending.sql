-- Reads what each pool of an account has free and held, what was charged to it on the last full UTC
-- days, since when it is used: the first of these days or today, or `used_before`; and what it had
-- after it was last filled.
-- $1 account_id  $2 number of full days
select p."family", p.posted - p.held as free, p.held, coalesce(s.amount, 0)::bigint as amount,
  s.first_day, b.used_before, f.filled_to, (now() at time zone 'utc')::date as today
from pools p
left join (
  select k."family", (min(u.hour) at time zone 'utc')::date as first_day,
    sum(u.amount) filter (where u.hour < date_trunc('day', now(), 'UTC')) as amount
  from usage_hourly u
  join keys k on k.account_id = u.account_id and k.key_id = u.key_id
  where u.account_id = $1
    and u.hour >= date_trunc('day', now(), 'UTC') - $2::integer * interval '1 day'
  group by k."family"
) s using ("family")
cross join usage_progress g
cross join lateral (
  select exists (
    select 1
    from usage_hourly u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = $1 and k."family" = p."family"
      and u.hour < date_trunc('day', now(), 'UTC') - $2::integer * interval '1 day'
      -- The closed days have the hours before: of a family without use, all of them are looked at.
      and u.hour >= g.closed_to::timestamp at time zone 'utc'
  ) or exists (
    select 1
    from usage_daily u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = $1 and k."family" = p."family"
      and u.day < (now() at time zone 'utc')::date - $2::integer
  ) as used_before
) b
left join lateral (
  select t.posted_after as filled_to
  from transfers t
  where t.account_id = $1 and t."family" = p."family" and t.amount > 0
  order by t.transfer_id desc
  limit 1
) f on true
where p.account_id = $1
order by p."family";
