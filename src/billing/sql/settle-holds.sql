-- Turns holds of locked pools into charges: no more than was held is charged, what was held is
-- given back, and the use is added to the roll-up of its UTC hour of admission. A charge also says
-- when the key was last used. A request that was settled before has no hold, and no row in the
-- answer.
-- $1 request_ids, each once  $2 to $7 tokens by category  $8 prices of the use  $9 outcomes  $10 bases  $11 attempts
with ended as (
  delete from holds h
  using unnest($1::text[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[],
    $8::bigint[], $9::text[], $10::text[], $11::jsonb[])
    as e (request_id, input, output, cache_write_5m, cache_write_1h, cache_read, thinking, used, outcome, basis, attempts)
  where h.request_id = e.request_id
  returning h.request_id, h.month, h.account_id, h.family, h.key_id, h.secret_id, h.model, h.price_version, h.admitted_at,
    e.input, e.output, e.cache_write_5m, e.cache_write_1h, e.cache_read, e.thinking,
    h.amount as hold, least(e.used, h.amount) as amount, greatest(e.used - h.amount, 0) as overrun, e.outcome, e.basis, e.attempts
), charged as (
  insert into charges (request_id, month, account_id, family, key_id, secret_id, model, price_version, admitted_at,
    input, output, cache_write_5m, cache_write_1h, cache_read, thinking, hold, amount, overrun, outcome, basis, attempts, settled_at)
  select ended.*, now() from ended
  returning *
), paid as (
  update pools
  set posted = pools.posted - d.amount, held = pools.held - d.hold,
    -- A debt ends when what is left covers what is held.
    in_debt = pools.in_debt and (pools.posted - d.amount < pools.held - d.hold or pools.posted - d.amount < 0)
  from (
    select account_id, family, sum(amount)::bigint as amount, sum(hold)::bigint as hold from charged group by account_id, family
  ) d
  where pools.account_id = d.account_id and pools.family = d.family
), spent as (
  update key_months
  set spent = key_months.spent + d.amount, held = key_months.held - d.hold, last_used_at = greatest(key_months.last_used_at, now())
  from (select key_id, month, sum(amount)::bigint as amount, sum(hold)::bigint as hold from charged group by key_id, month) d
  where key_months.key_id = d.key_id and key_months.month = d.month
), rolled_up as (
  insert into usage_hourly (account_id, key_id, model, hour, input, output, cache_write_5m, cache_write_1h, cache_read, thinking, amount, requests)
  select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'), sum(input), sum(output), sum(cache_write_5m),
    sum(cache_write_1h), sum(cache_read), sum(thinking), sum(amount), count(*)
  from charged
  group by 1, 2, 3, 4
  order by 1, 4, 2, 3
  on conflict (account_id, hour, key_id, model) do update
  set input = usage_hourly.input + excluded.input, output = usage_hourly.output + excluded.output,
    cache_write_5m = usage_hourly.cache_write_5m + excluded.cache_write_5m,
    cache_write_1h = usage_hourly.cache_write_1h + excluded.cache_write_1h,
    cache_read = usage_hourly.cache_read + excluded.cache_read, thinking = usage_hourly.thinking + excluded.thinking,
    amount = usage_hourly.amount + excluded.amount, requests = usage_hourly.requests + excluded.requests
)
select request_id, hold, amount, overrun, floor(extract(epoch from settled_at) * 1000)::bigint as settled_at_ms
from charged;
