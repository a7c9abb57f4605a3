-- Sums roll-ups by time, key, model and family: one page of rows. Whole days that are closed are
-- read from the days, the rest from the hours.
-- $1 account_id  $2 bucket: hour, day, month or none  $3 by key  $4 by model  $5 by family
-- $6, $7 hours before the days, $8, $9 days, $10, $11 hours after them: each from the first to the
-- second, exclusive  $12 key_ids and $13 models, or null for all  $14 to $17 cursor: period,
-- key_id, model and family of the last row of the page before, or null  $18 rows at most
with used as (
  select key_id, model, hour at time zone 'utc' as at, each_sum(#)
  from usage_hourly
  where account_id = $1 and hour >= $6 and hour < $7
  union all
  select key_id, model, day::timestamp, each_sum(#)
  from usage_daily
  where account_id = $1 and day >= $8::date and day < $9::date
  union all
  select key_id, model, hour at time zone 'utc', each_sum(#)
  from usage_hourly
  where account_id = $1 and hour >= $10 and hour < $11
), named as (
  select
    case $2::text
      when 'none' then $6::timestamptz at time zone 'utc'
      else date_trunc($2, used.at)
    end as period,
    case when $3 then used.key_id else '' end as key_id,
    case when $4 then used.model else '' end as model,
    coalesce(k."family", '') as "family",
    each_sum(used.#)
  from used
  left join keys k on $5 and k.account_id = $1 and k.key_id = used.key_id
  where ($12::text[] is null or used.key_id = any($12))
    and ($13::text[] is null or used.model = any($13))
)
select named.period at time zone 'utc' as period, key_id, model, "family",
  each_sum(sum(#)::bigint as #)
from named
where $14::timestamptz is null
  or (named.period, key_id, model, "family") > ($14 at time zone 'utc', $15, $16, $17)
group by named.period, key_id, model, "family"
order by named.period, key_id, model, "family"
limit $18;
