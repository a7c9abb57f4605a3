-- name: FindHolds :many
-- Finds the holds of those of these requests that run, with their prices.
-- =family pools.family
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags,
  h.input as used_input, h.output as used_output, h.thinking as used_thinking,
  h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read
from holds h
join unnest(:account_ids::text[], :request_ids::text[]) as d (account_id, request_id)
  using (account_id, request_id)
join price_versions p using (price_version);

-- name: FindRunning :many
-- Finds the holds with a request id in all accounts, with their prices.
-- =family pools.family
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags,
  h.input as used_input, h.output as used_output, h.thinking as used_thinking,
  h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read
from holds h
join price_versions p using (price_version)
where h.request_id = :request_id
order by h.admitted_at, h.account_id;

-- name: FindOrphans :many
-- Finds holds that no process will settle: holds past their deadline, of the given dead nodes, or
-- of nodes that no longer exist. Ordered by account and request id and paged, so that orphans that
-- cannot be settled do not hide the ones after them.
-- :after_account_id  of the last row of the page before; empty: from the first
-- :after_request_id  of the same row
-- =family pools.family
select h.request_id as "request_id!", h.account_id as "account_id!", h."family" as "family!",
  h.key_id as "key_id!", h.secret_id as "secret_id?", h.model as "model!", h.month as "month!",
  h.nonce as "nonce!", h.amount as "amount!", h.granted_output as "granted_output!",
  h.admitted_at as "admitted_at!", h.tags as "tags?",
  h.input as "used_input!", h.output as "used_output!", h.thinking as "used_thinking!",
  h.cache_write_5m as "used_cache_write_5m!", h.cache_write_1h as "used_cache_write_1h!",
  h.cache_read as "used_cache_read!",
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read
from (
  select * from holds where deadline < now()
  union
  select * from holds where node_id = any(:node_ids::text[])
  union
  select * from holds
  where node_id is not null
    and not exists (select 1 from nodes where nodes.node_id = holds.node_id)
) h
join price_versions p using (price_version)
where (h.account_id, h.request_id) > (:after_account_id, :after_request_id)
order by h.account_id, h.request_id
limit :rows;

-- name: FindOldestHold :one
-- Returns the UTC day of the oldest hold of all accounts; null if there is none.
select (min(admitted_at) at time zone 'utc')::date as "day?"
from holds;

-- name: FindFirstRunning :one
-- Returns the database's time, how far the days and the tags of days are written, and when the
-- first running request of an account was admitted; null if none runs.
-- :key_ids?  null: all keys
select now() as "at!", (now() at time zone 'utc')::date as "today!", closed_to, tags_to,
  (
    select min(admitted_at)
    from holds
    where account_id = :account_id and (:key_ids::text[] is null or key_id = any(:key_ids))
  ) as "admitted_at?"
from usage_progress;

-- name: SumHolds :one
-- Sums the running requests of all accounts.
select count(*)::bigint as "requests!", coalesce(sum(amount), 0)::bigint as "held_micro!",
  min(admitted_at) as "oldest_admitted_at?", min(deadline) as "first_deadline_at?"
from holds;

-- name: CheckpointHolds :run
-- Stores the metered usage of running requests; a count never decreases. Locks the holds in the
-- order of their ids, as settlement does. Changes the requests that still run.
with ordered as (
  select h.account_id, h.request_id
  from holds h
  join unnest(:account_ids::text[], :request_ids::text[]) as d (account_id, request_id)
    using (account_id, request_id)
  order by h.account_id, h.request_id
  for update of h
)
update holds
set (input, output, thinking, cache_write_5m, cache_write_1h, cache_read) = row (
      greatest(holds.input, d.input), greatest(holds.output, d.output),
      greatest(holds.thinking, d.thinking), greatest(holds.cache_write_5m, d.cache_write_5m),
      greatest(holds.cache_write_1h, d.cache_write_1h), greatest(holds.cache_read, d.cache_read))
from ordered
join unnest(:account_ids::text[], :request_ids::text[],
    :input::integer[], :output::integer[], :thinking::integer[], :cache_write_5m::integer[],
    :cache_write_1h::integer[], :cache_read::integer[])
  as d (account_id, request_id, input, output, thinking, cache_write_5m, cache_write_1h, cache_read)
  using (account_id, request_id)
where holds.account_id = ordered.account_id and holds.request_id = ordered.request_id;

-- name: ReleaseHold :run
-- Releases a hold whose request was charged: the rest of a request that was used twice. The caller
-- has locked the pool.
with released as (
  delete from holds h using charges c
  where h.account_id = :account_id and h.request_id = :request_id
    and c.account_id = h.account_id and c.request_id = h.request_id
  returning h.account_id, h."family", h.key_id, h.month, h.amount
), in_pool as (
  update pools
  set held = pools.held - r.amount,
    in_debt = pools.in_debt and (pools.posted < pools.held - r.amount or pools.posted < 0)
  from released r
  where pools.account_id = r.account_id and pools."family" = r."family"
)
update key_months
set held = key_months.held - r.amount
from released r
where key_months.account_id = r.account_id and key_months.key_id = r.key_id
  and key_months.month = r.month;
