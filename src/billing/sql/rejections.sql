-- name: AddErrors :run
-- Adds counts of rejected requests: each account, hour, key and reason once. Sorted, so that
-- processes that add at the same time wait for each other in the same order.
insert into errors_hourly (account_id, hour, key_id, reason, requests)
select account_id, hour, key_id, reason, requests
from unnest(:account_ids::text[], :hours::timestamptz[], :key_ids::text[], :reasons::text[],
    :counts::bigint[])
  as e (account_id, hour, key_id, reason, requests)
order by account_id, hour, key_id, reason
on conflict (account_id, hour, key_id, reason) do update
set requests = errors_hourly.requests + excluded.requests;

-- name: QueryErrors :many
-- Counts rejected requests by time, key and reason. Returns the sum of all rows first, marked
-- `is_total`, then one page of rows.
-- :bucket  hour, day, month or none
-- :to  exclusive
-- :key_ids?  null: all
-- :after_period?  of the last row of the page before; null: from the first
-- :after_key_id?  of the same row
-- :after_reason?  of the same row
with grouped as (
  select
    case :bucket::text
      when 'none' then :from::timestamptz
      when 'hour' then hour
      else date_trunc(:bucket, hour, 'UTC')
    end as period,
    case when :by_key then key_id else '' end as key_id,
    case when :by_reason then reason else '' end as reason,
    sum(requests)::bigint as requests
  from errors_hourly
  where account_id = :account_id and hour >= :from and hour < :to
    and (:key_ids::text[] is null or key_id = any(:key_ids))
  group by 1, 2, 3
), page as (
  select *
  from grouped
  where :after_period::timestamptz is null
    or (period, key_id, reason) > (:after_period, :after_key_id, :after_reason)
  order by period, key_id, reason
  limit :rows
)
select true as "is_total!", null as "period?", '' as "key_id!", '' as "reason!",
  coalesce(sum(requests), 0)::bigint as "requests!"
from grouped
union all
select false, period, key_id, reason, requests
from page
order by is_total desc, period, key_id, reason;

-- name: RemoveErrors :run
-- Removes the counts of rejected requests of some accounts before a UTC day.
delete from errors_hourly e
using unnest(:account_ids::text[]) as a (account_id)
where e.account_id = a.account_id and e.hour < :day::date::timestamp at time zone 'utc';
