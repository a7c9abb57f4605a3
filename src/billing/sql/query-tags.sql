-- Sums charges by the value of one tag, and by time, key, model and family: one page of rows. Whole
-- days whose tags are written are read from there, the rest from the charges. Without a value, the
-- requests without the tag are summed too, as all requests but the others. First events are not
-- kept by tag, so their counts are 0.
-- $1 account_id  $2 bucket: hour, day, month or none  $3 by key  $4 by model  $5 by family
-- $6, $7 hours before the days, $8, $9 days, $10, $11 hours after them: each from the first to the
-- second, exclusive  $12 key_ids and $13 models, or null for all  $14 to $17 cursor: period,
-- key_id, model and family of the last row of the page before, or null  $18 rows at most
-- $19 tag  $20 its value, or null for all  $21 cursor: value
with tagged as (
  select key_id, model, at, value, each_charged(sum(#)::bigint as #)
  from (
    -- In pieces as large as the rows of the answer: there may be a million charges.
    select c.key_id, c.model, c.tags ->> $19::text as value, charged_of(c, p),
      date_trunc(replace($2::text, 'none', 'month'), c.admitted_at at time zone 'utc') as at
    from charges c
    join price_versions p using (price_version)
    where c.account_id = $1 and c.amount >= 0 and c.tags ? $19
      and c.admitted_at >= $6 and c.admitted_at < $7
      -- The month of a charge is that of its admission. This leaves out the other partitions.
      and c.month between date_trunc('month', $6::timestamptz at time zone 'utc')::date
        and date_trunc('month', $7::timestamptz at time zone 'utc')::date
  ) charged
  group by key_id, model, at, value
  union all
  select key_id, model, day::timestamp, value, each_charged(#)
  from tags_daily
  where account_id = $1 and tag = $19 and day >= $8::date and day < $9::date
  union all
  select key_id, model, at, value, each_charged(sum(#)::bigint as #)
  from (
    select c.key_id, c.model, c.tags ->> $19::text as value, charged_of(c, p),
      date_trunc(replace($2::text, 'none', 'month'), c.admitted_at at time zone 'utc') as at
    from charges c
    join price_versions p using (price_version)
    where c.account_id = $1 and c.amount >= 0 and c.tags ? $19
      and c.admitted_at >= $10 and c.admitted_at < $11
      and c.month between date_trunc('month', $10::timestamptz at time zone 'utc')::date
        and date_trunc('month', $11::timestamptz at time zone 'utc')::date
  ) charged
  group by key_id, model, at, value
), used as (
  select *
  from tagged
  where $20::text is null or value = $20
  union all
  select key_id, model, at, '', each_charged(-#)
  from tagged
  where $20 is null
  union all
  select key_id, model, hour at time zone 'utc', '', each_charged(#)
  from usage_hourly
  where $20 is null and account_id = $1 and hour >= $6 and hour < $7
  union all
  select key_id, model, day::timestamp, '', each_charged(#)
  from usage_daily
  where $20 is null and account_id = $1 and day >= $8::date and day < $9::date
  union all
  select key_id, model, hour at time zone 'utc', '', each_charged(#)
  from usage_hourly
  where $20 is null and account_id = $1 and hour >= $10 and hour < $11
), named as (
  select
    case $2::text
      when 'none' then $6::timestamptz at time zone 'utc'
      else date_trunc($2, used.at)
    end as period,
    case when $3 then used.key_id else '' end as key_id,
    case when $4 then used.model else '' end as model,
    coalesce(k."family", '') as "family",
    used.value,
    each_charged(used.#)
  from used
  left join keys k on $5 and k.account_id = $1 and k.key_id = used.key_id
  where ($12::text[] is null or used.key_id = any($12))
    and ($13::text[] is null or used.model = any($13))
)
select named.period at time zone 'utc' as period, key_id, model, "family", value,
  each_charged(sum(#)::bigint as #), each_first_event(0::bigint as first_event_#)
from named
where $14::timestamptz is null
  or (named.period, key_id, model, "family", value)
    > ($14 at time zone 'utc', $15, $16, $17, $21)
group by named.period, key_id, model, "family", value
having sum(requests) > 0
order by named.period, key_id, model, "family", value
limit $18;
