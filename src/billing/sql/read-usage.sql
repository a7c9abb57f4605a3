-- Sums roll-ups by key, model and period.
-- $1 account_id  $2 from  $3 to, exclusive  $4 period: hour, day or all  $5 key_id, or '' for all
-- $6 model, or '' for all
select key_id, model,
  case $4
    when 'hour' then hour
    when 'day' then date_trunc('day', hour, 'UTC')
    else $2
  end as period_start,
  each_category(sum(#)::bigint as #),
  sum(amount)::bigint as amount, sum(requests)::bigint as requests
from usage_hourly
where account_id = $1 and hour >= $2 and hour < $3
  and ($5 = '' or key_id = $5) and ($6 = '' or model = $6)
group by key_id, model, period_start
order by period_start, key_id, model
limit 10000;
