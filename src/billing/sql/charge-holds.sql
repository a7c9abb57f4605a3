-- Turns locked holds into charges, and adds these to the roll-ups of their UTC hour of admission, in the order of the primary key.
-- $1 request_ids  $2 to $7 tokens by category  $8 holds  $9 amounts  $10 overruns  $11 outcomes  $12 bases  $13 attempts
with ended as (
  delete from holds h
  using unnest($1::text[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::jsonb[])
    as e (request_id, input, output, cache_write_5m, cache_write_1h, cache_read, thinking, hold, amount, overrun, outcome, basis, attempts)
  where h.request_id = e.request_id
  returning h.request_id, h.month, h.account_id, h.family, h.key_id, h.secret_id, h.model, h.price_version, h.admitted_at,
    e.input, e.output, e.cache_write_5m, e.cache_write_1h, e.cache_read, e.thinking, e.hold, e.amount, e.overrun, e.outcome, e.basis, e.attempts
), charged as (
  insert into charges (request_id, month, account_id, family, key_id, secret_id, model, price_version, admitted_at,
    input, output, cache_write_5m, cache_write_1h, cache_read, thinking, hold, amount, overrun, outcome, basis, attempts, settled_at)
  select ended.*, now() from ended
  returning account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC') as hour,
    input, output, cache_write_5m, cache_write_1h, cache_read, thinking, amount
)
insert into usage_hourly (account_id, key_id, model, hour, input, output, cache_write_5m, cache_write_1h, cache_read, thinking, amount, requests)
select account_id, key_id, model, hour, sum(input), sum(output), sum(cache_write_5m), sum(cache_write_1h),
  sum(cache_read), sum(thinking), sum(amount), count(*)
from charged
group by account_id, key_id, model, hour
order by account_id, hour, key_id, model
on conflict (account_id, hour, key_id, model) do update
set input = usage_hourly.input + excluded.input, output = usage_hourly.output + excluded.output,
  cache_write_5m = usage_hourly.cache_write_5m + excluded.cache_write_5m,
  cache_write_1h = usage_hourly.cache_write_1h + excluded.cache_write_1h,
  cache_read = usage_hourly.cache_read + excluded.cache_read, thinking = usage_hourly.thinking + excluded.thinking,
  amount = usage_hourly.amount + excluded.amount, requests = usage_hourly.requests + excluded.requests;
