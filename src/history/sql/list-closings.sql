-- The closed months, oldest first, what became of their charges, and the current UTC month. One row
-- without a month if none is closed.
select c.month, coalesce(a.sha256 = c.sha256, false) as is_exported,
  a.dropped_at is not null as is_dropped,
  date_trunc('month', now() at time zone 'utc')::date as current_month
from (select 1) as always
left join month_closings c on true
left join month_archives a on a.month = c.month
order by c.month;
