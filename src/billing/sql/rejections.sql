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
-- Stores refused requests: at most 100 of a key and 500 of an account in an hour, as far as
-- processes see each other's. One that was refused before is replaced.
-- :ats  the last time of each
-- :facts  JSON
with new as (
  select u.*, date_trunc('hour', u.at, 'UTC') as hour
  from unnest(:request_ids::text[], :account_ids::text[], :key_ids::text[], :ats::timestamptz[],
      :reasons::text[], :models::text[], :facts::text[])
    as u (request_id, account_id, key_id, at, reason, model, facts)
), of_keys as (
  select n.*
  from (
    select *, row_number() over (partition by key_id, hour order by at) as place
    from new
  ) n
  join (
    select d.key_id, d.hour, (
        select count(*)
        from refusals r
        where r.key_id = d.key_id and r.at >= d.hour and r.at < d.hour + interval '1 hour'
      ) as stored
    from (select distinct key_id, hour from new) d
  ) k on k.key_id = n.key_id and k.hour = n.hour
  where n.place + k.stored <= 100
), of_accounts as (
  select n.*
  from (
    select *, row_number() over (partition by account_id, hour order by at) as account_place
    from of_keys
  ) n
  join (
    select d.account_id, d.hour, (
        select count(*)
        from refusals r
        where r.account_id = d.account_id and r.at >= d.hour
          and r.at < d.hour + interval '1 hour'
      ) as stored
    from (select distinct account_id, hour from of_keys) d
  ) a on a.account_id = n.account_id and a.hour = n.hour
  where n.account_place + a.stored <= 500
)
insert into refusals as r (request_id, account_id, key_id, at, reason, model, facts)
select request_id, account_id, key_id, at, reason, model, facts::jsonb
from of_accounts
order by request_id, account_id
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

-- name: FindRequests :many
-- Finds the running, charged and refused requests with an id in all accounts. One statement: a
-- request that is settled meanwhile is found once.
-- :months  of the charges
select 'request' as "kind!", account_id as "account_id!", model as "model!", admitted_at as "at!"
from holds
where request_id = :request_id
union all
(
  select 'request', account_id, model, admitted_at
  from charges
  where request_id = :request_id and month = any(:months::date[])
  order by admitted_at, account_id
  limit 100
)
union all
(
  select 'refusal', account_id, model, at
  from refusals
  where request_id = :request_id and at > now() - interval '7 days'
  order by at desc
  limit 100
);

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
