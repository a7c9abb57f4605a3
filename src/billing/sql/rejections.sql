-- name: AddErrors :run
-- Adds counts of rejected requests: each account, hour, key and reason once. Sorted, so that
-- processes that add at the same time wait for each other in the same order.
-- :lasts  when the last of them was rejected
insert into errors_hourly (account_id, hour, key_id, reason, requests, last_at)
select account_id, hour, key_id, reason, requests, last_at
from unnest(:account_ids::text[], :hours::timestamptz[], :key_ids::text[], :reasons::text[],
    :counts::bigint[], :lasts::timestamptz[])
  as e (account_id, hour, key_id, reason, requests, last_at)
order by account_id, hour, key_id, reason
on conflict (account_id, hour, key_id, reason) do update
set requests = errors_hourly.requests + excluded.requests,
  last_at = greatest(errors_hourly.last_at, excluded.last_at);

-- name: AddRefusals :run
-- Stores refused requests: at most 100 of a key in an hour, as far as processes see each other's.
-- One that was refused before is replaced.
-- :ats  the last time of each
-- :facts  JSON
insert into refusals as r (request_id, account_id, key_id, at, reason, model, facts)
select n.request_id, n.account_id, n.key_id, n.at, n.reason, n.model, n.facts::jsonb
from (
  select u.*, row_number() over (
      partition by u.key_id, date_trunc('hour', u.at, 'UTC') order by u.at) as place
  from unnest(:request_ids::text[], :account_ids::text[], :key_ids::text[], :ats::timestamptz[],
      :reasons::text[], :models::text[], :facts::text[])
    as u (request_id, account_id, key_id, at, reason, model, facts)
) n
where n.place + (
    select count(*)
    from refusals k
    where k.key_id = n.key_id and k.at >= date_trunc('hour', n.at, 'UTC')
      and k.at < date_trunc('hour', n.at, 'UTC') + interval '1 hour'
  ) <= 100
order by n.request_id, n.account_id
on conflict (request_id, account_id) do update
set key_id = excluded.key_id, at = excluded.at, reason = excluded.reason, model = excluded.model,
  facts = excluded.facts
where r.at < excluded.at;

-- name: FindRefusals :many
-- Finds the refused requests with an id in all accounts, newest first.
select request_id, account_id, key_id, at, reason, model, facts
from refusals
where request_id = :request_id and at > now() - interval '7 days'
order by at desc
limit 100;

-- name: RemoveRefusals :run
-- Removes refused requests that are too old to be found, the oldest first.
-- :rows  at most
delete from refusals
where (request_id, account_id) in (
  select request_id, account_id
  from refusals
  where at <= now() - interval '7 days'
  order by at
  limit :rows
);

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
