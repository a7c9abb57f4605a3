-- What keys spent and hold in the months of holds that want to grow.
-- $1 key_ids  $2 months
select m.key_id, m.month, m.spent, m.held
from key_months m
join unnest($1::text[], $2::date[]) as asked (key_id, month) using (key_id, month);
