-- name: SettleHolds :many
-- Turns holds into charges. The caller has locked the pools. A charge is at most its hold: the rest
-- of the cost, and the cost of output beyond the grant, is the overrun. The hold is released, the
-- charge is added to the budgets of the key and of the manager that the hold names, with the time
-- of their last use, and to the roll-up of the UTC hour of admission. There, a hold that is too
-- small covers the input and web searches first, then the cache, then thinking, then output.
-- Returns the charges. A request that was settled before has no hold and no row.
-- :price_versions  by which they are charged
-- :costs_input  of the input and web searches
-- :costs_cache  of these and the cache
-- :costs_thinking  of these and thinking
-- :costs_over  of the output and the thinking beyond the grant
-- :caches_saved  nano-credits that the prompt cache saved
-- :first_events[]?  the numbers of the counts of first events; null: there was none
-- :facts[]?  null: there are none
-- :input  charged tokens, as the other categories
with today as materialized (
  select (now() at time zone 'utc')::date as today,
    date_trunc('week', now() at time zone 'utc')::date as monday,
    date_trunc('month', now() at time zone 'utc')::date as first
), ended as (
  delete from holds h
  using unnest(:account_ids::text[], :request_ids::text[], :price_versions::text[],
      :costs_input::bigint[], :costs_cache::bigint[], :costs_thinking::bigint[],
      :costs::bigint[], :costs_over::bigint[], :caches_saved::bigint[],
      :outputs_over::integer[], :thinkings_over::integer[], :outcomes::text[], :bases::text[],
      :attempts::jsonb[], :first_events::integer[], :facts::jsonb[],
      :input::integer[], :output::integer[], :thinking::integer[], :cache_write_5m::integer[],
      :cache_write_1h::integer[], :cache_read::integer[], :web_searches::integer[])
    as e (account_id, request_id, price_version, cost_input, cost_cache, cost_thinking, cost,
      cost_over, cache_saved,
      output_over, thinking_over, outcome, basis, attempts, first_event, facts,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches)
  where h.account_id = e.account_id and h.request_id = e.request_id
  returning h.account_id, h.request_id, h.month, h."family", h.key_id, h.secret_id, h.model,
    e.price_version, h.admitted_at, h.granted_output, h.tags, h.made_by, h.manager,
    h.amount as hold, e.cost_input, e.cost_cache, e.cost_thinking, e.cost, e.cost_over,
    e.cache_saved, e.output_over, e.thinking_over, e.outcome, e.basis, e.attempts, e.first_event,
    e.facts,
    e.input, e.output, e.thinking, e.cache_write_5m, e.cache_write_1h, e.cache_read, e.web_searches
), charged as (
  insert into charges (account_id, request_id, month, "family", key_id, secret_id, model,
    price_version, admitted_at, granted_output, hold, amount, overrun, output_over, thinking_over,
    outcome, basis, attempts, settled_at, tags, made_by, manager, facts,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches)
  select account_id, request_id, month, "family", key_id, secret_id, model, price_version,
    admitted_at, granted_output, hold, least(cost, hold), greatest(cost - hold, 0) + cost_over,
    output_over, thinking_over, outcome, basis, attempts, now(), tags, made_by, manager, facts,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches
  from ended
  returning account_id, request_id, "family", key_id, manager, hold, amount, overrun, settled_at
), in_pools as (
  update pools p
  set posted = p.posted - d.amount, held = p.held - d.hold,
    -- A debt ends when the credits that are left cover the running holds.
    in_debt = p.in_debt and p.posted - d.amount < p.held - d.hold,
    spent = p.spent + d.amount, running = p.running - d.requests,
    day = greatest(p.day, t.today),
    day_base = case when p.day < t.today then p.spent else p.day_base end,
    week_base = case when p.day < t.monday then p.spent else p.week_base end,
    month_base = case when p.day < t.first then p.spent else p.month_base end
  from (
    select account_id, "family", sum(amount)::bigint as amount, sum(hold)::bigint as hold,
      count(*)::integer as requests
    from charged
    group by account_id, "family"
  ) d
  cross join today t
  where p.account_id = d.account_id and p."family" = d."family"
), in_budgets as (
  update budgets b
  set spent = b.spent + d.amount,
    held = case when b.is_limited then b.held - d.hold else 0 end,
    running = case when b.is_limited then b.running - d.requests else 0 end,
    last_used_at = greatest(b.last_used_at, now()),
    day = greatest(b.day, t.today),
    day_base = case when b.day < t.today then b.spent else b.day_base end,
    week_base = case when b.day < t.monday then b.spent else b.week_base end,
    month_base = case when b.day < t.first then b.spent else b.month_base end
  from (
    select account_id, "family", payer, sum(amount)::bigint as amount, sum(hold)::bigint as hold,
      count(*)::integer as requests
    from (
      select account_id, "family", key_id as payer, amount, hold from charged
      union all
      select account_id, "family", manager, amount, hold from charged where manager is not null
    ) payers
    group by account_id, "family", payer
  ) d
  cross join today t
  where b.account_id = d.account_id and b."family" = d."family" and b.payer = d.payer
), rolled_up as (
  insert into usage_hourly as u (account_id, key_id, model, hour,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21)
  select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'),
    sum(input), sum(output), sum(thinking), sum(cache_write_5m), sum(cache_write_1h),
    sum(cache_read), sum(web_searches),
    sum(least(cost, hold)),
    sum(least(cost_input, hold)),
    sum(least(cost, hold) - least(cost_thinking, hold)),
    sum(least(cost_cache, hold) - least(cost_input, hold)),
    sum(least(cost_thinking, hold) - least(cost_cache, hold)),
    count(*),
    count(*) filter (where outcome = 'completed'),
    count(*) filter (where outcome in ('provider_failed', 'provider_broke', 'gateway_failed',
      'reaped', 'input_above_hold')),
    count(*) filter (where outcome in ('client_left_before_acceptance',
      'client_left_before_content', 'client_left', 'revoked', 'time_limit')),
    sum(cache_saved),
    count(*) filter (where first_event = 1), count(*) filter (where first_event = 2),
    count(*) filter (where first_event = 3), count(*) filter (where first_event = 4),
    count(*) filter (where first_event = 5), count(*) filter (where first_event = 6),
    count(*) filter (where first_event = 7), count(*) filter (where first_event = 8),
    count(*) filter (where first_event = 9), count(*) filter (where first_event = 10),
    count(*) filter (where first_event = 11), count(*) filter (where first_event = 12),
    count(*) filter (where first_event = 13), count(*) filter (where first_event = 14),
    count(*) filter (where first_event = 15), count(*) filter (where first_event = 16),
    count(*) filter (where first_event = 17), count(*) filter (where first_event = 18),
    count(*) filter (where first_event = 19), count(*) filter (where first_event = 20),
    count(*) filter (where first_event = 21)
  from ended
  group by 1, 2, 3, 4
  order by 1, 4, 2, 3
  on conflict (account_id, hour, key_id, model) do update
  set (input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
      first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
      first_event_12, first_event_13, first_event_14, first_event_15, first_event_16,
      first_event_17, first_event_18, first_event_19, first_event_20, first_event_21) = row (
        u.input + excluded.input, u.output + excluded.output, u.thinking + excluded.thinking,
        u.cache_write_5m + excluded.cache_write_5m, u.cache_write_1h + excluded.cache_write_1h,
        u.cache_read + excluded.cache_read, u.web_searches + excluded.web_searches,
        u.amount + excluded.amount, u.amount_input + excluded.amount_input,
        u.amount_output + excluded.amount_output, u.amount_cache + excluded.amount_cache,
        u.amount_thinking + excluded.amount_thinking,
        u.requests + excluded.requests, u.completed + excluded.completed,
        u.failed + excluded.failed, u.cut + excluded.cut,
        u.cache_saved + excluded.cache_saved, u.first_event_1 + excluded.first_event_1,
        u.first_event_2 + excluded.first_event_2, u.first_event_3 + excluded.first_event_3,
        u.first_event_4 + excluded.first_event_4, u.first_event_5 + excluded.first_event_5,
        u.first_event_6 + excluded.first_event_6, u.first_event_7 + excluded.first_event_7,
        u.first_event_8 + excluded.first_event_8, u.first_event_9 + excluded.first_event_9,
        u.first_event_10 + excluded.first_event_10, u.first_event_11 + excluded.first_event_11,
        u.first_event_12 + excluded.first_event_12, u.first_event_13 + excluded.first_event_13,
        u.first_event_14 + excluded.first_event_14, u.first_event_15 + excluded.first_event_15,
        u.first_event_16 + excluded.first_event_16, u.first_event_17 + excluded.first_event_17,
        u.first_event_18 + excluded.first_event_18, u.first_event_19 + excluded.first_event_19,
        u.first_event_20 + excluded.first_event_20, u.first_event_21 + excluded.first_event_21)
)
select account_id, request_id, hold, amount, overrun,
  floor(extract(epoch from settled_at) * 1000)::bigint as "settled_at_ms!"
from charged;

-- name: SettleHold :optional
-- Settles one hold as SettleHolds does, for a request that is alone in its batch: without sums over
-- requests it takes two thirds of the processor time. The caller has locked the pool. No row: the
-- request was settled before.
-- :price_version  by which it is charged
-- :cost_input  of the input and web searches
-- :cost_cache  of these and the cache
-- :cost_thinking  of these and thinking
-- :cost_over  of the output and the thinking beyond the grant
-- :cache_saved  nano-credits that the prompt cache saved
-- :first_event?  the number of the count of its first event; null: there was none
-- :facts?  null: there are none
-- :input  charged tokens, as the other categories
with today as materialized (
  select (now() at time zone 'utc')::date as today,
    date_trunc('week', now() at time zone 'utc')::date as monday,
    date_trunc('month', now() at time zone 'utc')::date as first
), ended as (
  delete from holds
  where account_id = :account_id and request_id = :request_id
  returning account_id, request_id, month, "family", key_id, secret_id, model, admitted_at,
    granted_output, tags, made_by, manager, amount as hold
), charged as (
  insert into charges (account_id, request_id, month, "family", key_id, secret_id, model,
    price_version, admitted_at, granted_output, hold, amount, overrun, output_over, thinking_over,
    outcome, basis, attempts, settled_at, tags, made_by, manager, facts,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches)
  select account_id, request_id, month, "family", key_id, secret_id, model, :price_version,
    admitted_at, granted_output, hold, least(:cost::bigint, hold),
    greatest(:cost - hold, 0) + :cost_over::bigint, :output_over, :thinking_over, :outcome::text,
    :basis, :attempts::jsonb, now(), tags, made_by, manager, :facts::jsonb,
    :input::integer, :output::integer, :thinking::integer, :cache_write_5m::integer,
    :cache_write_1h::integer, :cache_read::integer, :web_searches::integer
  from ended
  returning account_id, request_id, "family", key_id, manager, hold, amount, overrun, settled_at
), in_pool as (
  update pools p
  set posted = p.posted - c.amount, held = p.held - c.hold,
    -- A debt ends when the credits that are left cover the running holds.
    in_debt = p.in_debt and p.posted - c.amount < p.held - c.hold,
    spent = p.spent + c.amount, running = p.running - 1,
    day = greatest(p.day, t.today),
    day_base = case when p.day < t.today then p.spent else p.day_base end,
    week_base = case when p.day < t.monday then p.spent else p.week_base end,
    month_base = case when p.day < t.first then p.spent else p.month_base end
  from charged c
  cross join today t
  where p.account_id = c.account_id and p."family" = c."family"
), in_budgets as (
  update budgets b
  set spent = b.spent + c.amount,
    held = case when b.is_limited then b.held - c.hold else 0 end,
    running = case when b.is_limited then b.running - 1 else 0 end,
    last_used_at = greatest(b.last_used_at, now()),
    day = greatest(b.day, t.today),
    day_base = case when b.day < t.today then b.spent else b.day_base end,
    week_base = case when b.day < t.monday then b.spent else b.week_base end,
    month_base = case when b.day < t.first then b.spent else b.month_base end
  from charged c
  cross join today t
  where b.account_id = c.account_id and b."family" = c."family" and b.payer in (c.key_id, c.manager)
), rolled_up as (
  insert into usage_hourly as u (
    account_id, key_id, model, hour, input, output, thinking, cache_write_5m, cache_write_1h,
    cache_read, web_searches, amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut, cache_saved, first_event_1, first_event_2, first_event_3,
    first_event_4, first_event_5, first_event_6, first_event_7, first_event_8, first_event_9,
    first_event_10, first_event_11, first_event_12, first_event_13, first_event_14, first_event_15,
    first_event_16, first_event_17, first_event_18, first_event_19, first_event_20, first_event_21)
  select
    account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'), :input, :output, :thinking,
    :cache_write_5m, :cache_write_1h, :cache_read, :web_searches, least(:cost, hold),
    least(:cost_input, hold), least(:cost, hold) - least(:cost_thinking, hold),
    least(:cost_cache, hold) - least(:cost_input, hold),
    least(:cost_thinking, hold) - least(:cost_cache, hold), 1, (:outcome = 'completed')::integer,
    (:outcome in ('provider_failed', 'provider_broke', 'gateway_failed', 'reaped',
      'input_above_hold'))::integer,
    (:outcome in ('client_left_before_acceptance', 'client_left_before_content', 'client_left',
      'revoked', 'time_limit'))::integer,
    :cache_saved::bigint, coalesce(:first_event = 1, false)::integer,
    coalesce(:first_event = 2, false)::integer, coalesce(:first_event = 3, false)::integer,
    coalesce(:first_event = 4, false)::integer, coalesce(:first_event = 5, false)::integer,
    coalesce(:first_event = 6, false)::integer, coalesce(:first_event = 7, false)::integer,
    coalesce(:first_event = 8, false)::integer, coalesce(:first_event = 9, false)::integer,
    coalesce(:first_event = 10, false)::integer, coalesce(:first_event = 11, false)::integer,
    coalesce(:first_event = 12, false)::integer, coalesce(:first_event = 13, false)::integer,
    coalesce(:first_event = 14, false)::integer, coalesce(:first_event = 15, false)::integer,
    coalesce(:first_event = 16, false)::integer, coalesce(:first_event = 17, false)::integer,
    coalesce(:first_event = 18, false)::integer, coalesce(:first_event = 19, false)::integer,
    coalesce(:first_event = 20, false)::integer, coalesce(:first_event = 21, false)::integer
  from ended
  on conflict (account_id, hour, key_id, model) do update set
    input = u.input + excluded.input, output = u.output + excluded.output,
    thinking = u.thinking + excluded.thinking,
    cache_write_5m = u.cache_write_5m + excluded.cache_write_5m,
    cache_write_1h = u.cache_write_1h + excluded.cache_write_1h,
    cache_read = u.cache_read + excluded.cache_read,
    web_searches = u.web_searches + excluded.web_searches, amount = u.amount + excluded.amount,
    amount_input = u.amount_input + excluded.amount_input,
    amount_output = u.amount_output + excluded.amount_output,
    amount_cache = u.amount_cache + excluded.amount_cache,
    amount_thinking = u.amount_thinking + excluded.amount_thinking,
    requests = u.requests + excluded.requests, completed = u.completed + excluded.completed,
    failed = u.failed + excluded.failed, cut = u.cut + excluded.cut,
    cache_saved = u.cache_saved + excluded.cache_saved,
    first_event_1 = u.first_event_1 + excluded.first_event_1,
    first_event_2 = u.first_event_2 + excluded.first_event_2,
    first_event_3 = u.first_event_3 + excluded.first_event_3,
    first_event_4 = u.first_event_4 + excluded.first_event_4,
    first_event_5 = u.first_event_5 + excluded.first_event_5,
    first_event_6 = u.first_event_6 + excluded.first_event_6,
    first_event_7 = u.first_event_7 + excluded.first_event_7,
    first_event_8 = u.first_event_8 + excluded.first_event_8,
    first_event_9 = u.first_event_9 + excluded.first_event_9,
    first_event_10 = u.first_event_10 + excluded.first_event_10,
    first_event_11 = u.first_event_11 + excluded.first_event_11,
    first_event_12 = u.first_event_12 + excluded.first_event_12,
    first_event_13 = u.first_event_13 + excluded.first_event_13,
    first_event_14 = u.first_event_14 + excluded.first_event_14,
    first_event_15 = u.first_event_15 + excluded.first_event_15,
    first_event_16 = u.first_event_16 + excluded.first_event_16,
    first_event_17 = u.first_event_17 + excluded.first_event_17,
    first_event_18 = u.first_event_18 + excluded.first_event_18,
    first_event_19 = u.first_event_19 + excluded.first_event_19,
    first_event_20 = u.first_event_20 + excluded.first_event_20,
    first_event_21 = u.first_event_21 + excluded.first_event_21
)
select account_id, request_id, hold, amount, overrun,
  floor(extract(epoch from settled_at) * 1000)::bigint as "settled_at_ms!"
from charged;

-- name: FindHolds :many
-- Finds the holds of those of these requests that run, with their prices.
-- =family pools.family
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags, h.made_by,
  h.input as used_input, h.output as used_output, h.thinking as used_thinking,
  h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read, h.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from holds h
join unnest(:account_ids::text[], :request_ids::text[]) as d (account_id, request_id)
  using (account_id, request_id)
join price_versions p using (price_version);

-- name: FindRunning :many
-- Finds the holds with a request id in all accounts, with their prices.
-- =family pools.family
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags, h.made_by,
  h.input as used_input, h.output as used_output, h.thinking as used_thinking,
  h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read, h.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from holds h
join price_versions p using (price_version)
where h.request_id = :request_id
order by h.admitted_at, h.account_id;

-- name: ListRunningOf :many
-- Lists the requests of an account that hold credits, the oldest first, with their prices.
-- :after_at?  only those admitted after this time; null: from the oldest
-- :after_id  or at this time, with an id after this one
-- =family pools.family
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags, h.made_by,
  h.input as used_input, h.output as used_output, h.thinking as used_thinking,
  h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read, h.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from holds h
join price_versions p using (price_version)
where h.account_id = :account_id
  and (:after_at::timestamptz is null
    or (h.admitted_at, h.request_id) > (:after_at, :after_id::text))
order by h.admitted_at, h.request_id
limit :rows::integer;

-- name: AskToEnd :optional
-- Asks the node that runs a request to end it. No row: no such request runs. `is_asked` false: an
-- internal service holds it, which no node runs.
with running as (
  select account_id, request_id, node_id is not null as is_asked
  from holds
  where account_id = :account_id and request_id = :request_id
), asked as (
  insert into ended_requests (account_id, request_id)
  select account_id, request_id from running where is_asked
  on conflict (account_id, request_id) do update set asked_at = now()
)
select is_asked as "is_asked!" from running;

-- name: TakeEnded :many timeout_ms=2000
-- Takes the requests of a node that it was asked to end. What ended by itself goes later.
delete from ended_requests e
where exists (
    select 1 from holds h
    where h.account_id = e.account_id and h.request_id = e.request_id and h.node_id = :node_id
  )
  or e.asked_at < now() - interval '10 minutes'
returning account_id, request_id;

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
  h.admitted_at as "admitted_at!", h.tags as "tags?", h.made_by as "made_by?",
  h.input as "used_input!", h.output as "used_output!", h.thinking as "used_thinking!",
  h.cache_write_5m as "used_cache_write_5m!", h.cache_write_1h as "used_cache_write_1h!",
  h.cache_read as "used_cache_read!", h.web_searches as "used_web_searches!",
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
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

-- name: LockHolds :many
-- Locks holds in the order of their ids. A settled request has no hold and no row.
select h.account_id, h.request_id, h.amount, h.manager
from holds h
join unnest(:account_ids::text[], :request_ids::text[]) as d (account_id, request_id)
  using (account_id, request_id)
order by h.account_id, h.request_id
for update of h;

-- name: ResizeHolds :run
-- Changes the amounts of holds, and with them the held amounts of their pools and budgets. The
-- caller has locked the pools. A hold that no longer exists is ignored.
-- :may_grow  false: a larger amount is ignored, too
with resized as materialized (
  select h.request_id, h.account_id, h."family", h.key_id, h.manager,
    d.amount, d.amount - h.amount as added
  from holds h
  join unnest(:account_ids::text[], :request_ids::text[], :amounts::bigint[])
    as d (account_id, request_id, amount)
    on h.account_id = d.account_id and h.request_id = d.request_id
  where (d.amount < h.amount or (:may_grow::boolean and d.amount > h.amount))
), in_pools as (
  update pools
  set held = pools.held + d.added,
    in_debt = pools.in_debt and pools.posted < pools.held + d.added
  from (
    select account_id, "family", sum(added)::bigint as added
    from resized
    group by account_id, "family"
  ) d
  where pools.account_id = d.account_id and pools."family" = d."family"
), in_budgets as (
  update budgets b
  set held = b.held + d.added
  from (
    select account_id, "family", payer, sum(added)::bigint as added
    from (
      select account_id, "family", key_id as payer, added from resized
      union all
      select account_id, "family", manager, added from resized where manager is not null
    ) payers
    group by account_id, "family", payer
  ) d
  where b.account_id = d.account_id and b."family" = d."family" and b.payer = d.payer
    and b.is_limited
)
update holds
set amount = resized.amount
from resized
where holds.account_id = resized.account_id and holds.request_id = resized.request_id;

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
set (input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches) = row (
      greatest(holds.input, d.input), greatest(holds.output, d.output),
      greatest(holds.thinking, d.thinking), greatest(holds.cache_write_5m, d.cache_write_5m),
      greatest(holds.cache_write_1h, d.cache_write_1h), greatest(holds.cache_read, d.cache_read),
      greatest(holds.web_searches, d.web_searches))
from ordered
join unnest(:account_ids::text[], :request_ids::text[],
    :input::integer[], :output::integer[], :thinking::integer[], :cache_write_5m::integer[],
    :cache_write_1h::integer[], :cache_read::integer[], :web_searches::integer[])
  as d (account_id, request_id, input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
    web_searches)
  using (account_id, request_id)
where holds.account_id = ordered.account_id and holds.request_id = ordered.request_id;

-- name: ReleaseHold :run
-- Releases a hold whose request was charged: the rest of a request that was used twice. The caller
-- has locked the pool.
with released as (
  delete from holds h using charges c
  where h.account_id = :account_id and h.request_id = :request_id
    and c.account_id = h.account_id and c.request_id = h.request_id
  returning h.account_id, h."family", h.key_id, h.manager, h.amount
), in_pool as (
  update pools
  set held = pools.held - r.amount, running = pools.running - 1,
    in_debt = pools.in_debt and pools.posted < pools.held - r.amount
  from released r
  where pools.account_id = r.account_id and pools."family" = r."family"
)
update budgets b
set held = b.held - r.amount, running = b.running - 1
from released r
where b.account_id = r.account_id and b."family" = r."family"
  and b.payer in (r.key_id, r.manager) and b.is_limited;
