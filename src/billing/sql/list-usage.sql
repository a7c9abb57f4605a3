-- Lists roll-ups by UTC day, key and model, one page of rows, with the family of the key if asked.
-- Answers as `query-usage` grouped so, without reading more rows than the page has: each row is one
-- of a table already.
-- $1 account_id  $2, $3 hours before the days, $4, $5 days, $6, $7 hours after them: each from the
-- first to the second, exclusive  $8 key_ids and $9 models, or null for all  $10 to $12 cursor:
-- day, key_id and model of the last row of the page before, or null  $13 rows at most
-- $14 with the family
select page.day, page.key_id, page.model, coalesce(k."family", '') as "family", each_sum(page.#)
from (
  select day, key_id, model, each_sum(#)
  from (
    (
      select (hour at time zone 'utc')::date as day, key_id, model, each_sum(sum(#)::bigint as #)
      from usage_hourly
      where account_id = $1 and hour >= $2 and hour < $3
      group by 1, 2, 3
      order by 1, 2, 3
    )
    union all
    (
      select day, key_id, model, each_sum(#)
      from usage_daily
      where account_id = $1 and day >= $4::date and day < $5::date
      order by day, key_id, model
    )
    union all
    (
      select (hour at time zone 'utc')::date, key_id, model, each_sum(sum(#)::bigint)
      from usage_hourly
      where account_id = $1 and hour >= $6 and hour < $7
      group by 1, 2, 3
      order by 1, 2, 3
    )
  ) rows
  where ($8::text[] is null or key_id = any($8)) and ($9::text[] is null or model = any($9))
    and ($10::date is null or (day, key_id, model) > ($10, $11, $12))
  order by day, key_id, model
  limit $13
) page
left join keys k on $14 and k.account_id = $1 and k.key_id = page.key_id
order by page.day, page.key_id, page.model;
