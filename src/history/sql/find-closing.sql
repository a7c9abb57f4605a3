-- The closing of a month, and whether its charges were removed.
-- $1 month
select c.month, c.charges, c.amount, c.sha256, c.form, c.closed_at,
  a.dropped_at is not null as is_dropped
from month_closings c
left join month_archives a on a.month = c.month
where c.month = $1::date;
