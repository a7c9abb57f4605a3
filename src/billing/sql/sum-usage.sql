-- Sums roll-ups as `query-usage` does, over all rows of all pages.
-- $1 account_id  $2, $3 hours before the days, $4, $5 days, $6, $7 hours after them: each from the
-- first to the second, exclusive  $8 key_ids and $9 models, or null for all
with used as (
  select key_id, model, each_sum(#)
  from usage_hourly
  where account_id = $1 and hour >= $2 and hour < $3
  union all
  select key_id, model, each_sum(#)
  from usage_daily
  where account_id = $1 and day >= $4::date and day < $5::date
  union all
  select key_id, model, each_sum(#)
  from usage_hourly
  where account_id = $1 and hour >= $6 and hour < $7
), total as (
  select each_sum(sum(#)::bigint as #)
  from used
  where ($8::text[] is null or key_id = any($8)) and ($9::text[] is null or model = any($9))
)
select each_sum(coalesce(#, 0) as #)
from total;
