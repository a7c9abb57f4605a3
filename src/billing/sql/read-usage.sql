-- Sums of roll-ups by key, model and period.
-- $1 account_id  $2 from  $3 to, exclusive  $4 period: hour, day or all  $5 key_id, empty for all  $6 model, empty for all
select key_id, model, case $4 when 'hour' then hour when 'day' then date_trunc('day', hour, 'UTC') else $2 end as period_start,
  sum(input)::bigint as input, sum(output)::bigint as output, sum(cache_write_5m)::bigint as cache_write_5m,
  sum(cache_write_1h)::bigint as cache_write_1h, sum(cache_read)::bigint as cache_read, sum(thinking)::bigint as thinking,
  sum(amount)::bigint as amount, sum(requests)::bigint as requests
from usage_hourly
where account_id = $1 and hour >= $2 and hour < $3 and ($5 = '' or key_id = $5) and ($6 = '' or model = $6)
group by key_id, model, period_start
order by period_start, key_id, model
limit 10000;
