-- Turns holds into charges. The caller has locked the pools. A charge is at most its hold: the rest
-- of the cost, and the cost of output beyond the grant, is the overrun. The hold is released, the
-- charge is added to the month of the key, which also records the last use of the key, and the
-- charge is added to the roll-up of the UTC hour of admission. There, a hold that is too small
-- covers the input first, then the cache, then thinking, then output. Returns the charges. A
-- request that was settled before has no hold and no row.
-- $1 account_ids and $2 request_ids, each request once  $3 to $6 costs of the charged tokens: of
-- the input, with those of the cache, with those of thinking, of all  $7 costs, $8 output and
-- $9 thinking of the tokens beyond the grant  $10 outcomes  $11 bases  $12 attempts  $13 numbers of
-- the first events, or null  $14 and on: charged tokens, one array per category
with ended as (
  delete from holds h
  using unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
    $7::bigint[], $8::integer[], $9::integer[], $10::text[], $11::text[], $12::jsonb[],
    $13::integer[], each_category($14::integer[]))
    as e (account_id, request_id, cost_input, cost_cache, cost_thinking, cost, cost_over,
      output_over, thinking_over, outcome, basis, attempts, first_event, each_category(#))
  where h.account_id = e.account_id and h.request_id = e.request_id
  returning h.account_id, h.request_id, h.month, h."family", h.key_id, h.secret_id, h.model,
    h.price_version, h.admitted_at, h.granted_output, h.tags, h.amount as hold, e.cost_input,
    e.cost_cache, e.cost_thinking, e.cost, e.cost_over, e.output_over, e.thinking_over, e.outcome,
    e.basis, e.attempts, e.first_event, each_category(e.#)
), charged as (
  insert into charges (account_id, request_id, month, "family", key_id, secret_id, model,
    price_version, admitted_at, granted_output, hold, amount, overrun, output_over, thinking_over,
    outcome, basis, attempts, settled_at, tags, each_category(#))
  select account_id, request_id, month, "family", key_id, secret_id, model, price_version,
    admitted_at, granted_output, hold, least(cost, hold), greatest(cost - hold, 0) + cost_over,
    output_over, thinking_over, outcome, basis, attempts, now(), tags, each_category(#)
  from ended
  returning account_id, request_id, month, "family", key_id, hold, amount, overrun, settled_at
), in_pools as (
  update pools
  set posted = pools.posted - d.amount, held = pools.held - d.hold,
    -- A debt ends when the credits that are left cover the running holds.
    in_debt = pools.in_debt
      and (pools.posted - d.amount < pools.held - d.hold or pools.posted - d.amount < 0)
  from (
    select account_id, "family", sum(amount)::bigint as amount, sum(hold)::bigint as hold
    from charged
    group by account_id, "family"
  ) d
  where pools.account_id = d.account_id and pools."family" = d."family"
), in_months as (
  update key_months
  set spent = key_months.spent + d.amount, held = key_months.held - d.hold,
    last_used_at = greatest(key_months.last_used_at, now())
  from (
    select account_id, key_id, month, sum(amount)::bigint as amount, sum(hold)::bigint as hold
    from charged
    group by account_id, key_id, month
  ) d
  where key_months.account_id = d.account_id and key_months.key_id = d.key_id
    and key_months.month = d.month
), rolled_up as (
  insert into usage_hourly (account_id, key_id, model, hour, each_sum(#))
  select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'), each_category(sum(#)),
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
    each_first_event(count(*) filter (where first_event = #))
  from ended
  group by 1, 2, 3, 4
  order by 1, 4, 2, 3
  on conflict (account_id, hour, key_id, model) do update
  set (each_sum(#)) = row (each_sum(usage_hourly.# + excluded.#))
)
select account_id, request_id, hold, amount, overrun,
  floor(extract(epoch from settled_at) * 1000)::bigint as settled_at_ms
from charged;
