-- Adds charges to the roll-ups of their UTC hour of admission, in the order of the primary key.
-- $1 account_ids  $2 key_ids  $3 models  $4 times of admission  $5 to $10 tokens by category  $11 amounts
insert into usage_hourly (account_id, key_id, model, hour, input, output, cache_write_5m, cache_write_1h, cache_read, thinking, amount, requests)
select account_id, key_id, model, date_trunc('hour', at, 'UTC') as hour, sum(input), sum(output), sum(cache_write_5m), sum(cache_write_1h),
  sum(cache_read), sum(thinking), sum(amount), count(*)
from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::integer[],
  $10::integer[], $11::bigint[])
  as c (account_id, key_id, model, at, input, output, cache_write_5m, cache_write_1h, cache_read, thinking, amount)
group by account_id, key_id, model, hour
order by account_id, hour, key_id, model
on conflict (account_id, hour, key_id, model) do update
set input = usage_hourly.input + excluded.input, output = usage_hourly.output + excluded.output,
  cache_write_5m = usage_hourly.cache_write_5m + excluded.cache_write_5m,
  cache_write_1h = usage_hourly.cache_write_1h + excluded.cache_write_1h,
  cache_read = usage_hourly.cache_read + excluded.cache_read, thinking = usage_hourly.thinking + excluded.thinking,
  amount = usage_hourly.amount + excluded.amount, requests = usage_hourly.requests + excluded.requests;
