-- Counts rejected requests by time, key and reason. Returns the sum of all rows first, marked
-- `is_total`, then one page of rows.
-- $1 account_id  $2 bucket: hour, day, month or none  $3 by key  $4 by reason  $5 from  $6 to,
-- exclusive  $7 key_ids, or null for all  $8 to $10 cursor: period, key_id and reason of the last
-- row of the page before, or null  $11 rows at most
with grouped as (
  select
    case $2::text
      when 'none' then $5::timestamptz
      when 'hour' then hour
      else date_trunc($2, hour, 'UTC')
    end as period,
    case when $3 then key_id else '' end as key_id,
    case when $4 then reason else '' end as reason,
    sum(requests)::bigint as requests
  from errors_hourly
  where account_id = $1 and hour >= $5 and hour < $6
    and ($7::text[] is null or key_id = any($7))
  group by 1, 2, 3
), page as (
  select *
  from grouped
  where $8::timestamptz is null or (period, key_id, reason) > ($8, $9, $10)
  order by period, key_id, reason
  limit $11
)
select true as is_total, null as period, '' as key_id, '' as reason,
  coalesce(sum(requests), 0)::bigint as requests
from grouped
union all
select false, period, key_id, reason, requests
from page
order by is_total desc, period, key_id, reason;
