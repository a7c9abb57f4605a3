-- What decides whether a month can be closed: the current month, the last closed one, the holds of
-- this month and earlier ones, and whether its days are written.
-- $1 month
select date_trunc('month', now() at time zone 'utc')::date as current_month,
  (select max(month) from month_closings) as last_closed,
  h.holds, h.oldest,
  least(g.closed_to, g.tags_to) >= ($1::date + interval '1 month')::date as has_days
from usage_progress g
cross join (
  select count(*)::integer as holds, min(admitted_at) as oldest
  from holds
  where month <= $1::date
) h;
