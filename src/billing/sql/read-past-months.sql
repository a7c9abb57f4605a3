-- Reads the spent and held credits of keys, in the months in which growing holds were admitted.
-- $1 key_ids  $2 months
select m.key_id, m.month, m.spent, m.held
from key_months m
join unnest($1::text[], $2::date[]) as wanted (key_id, month) using (key_id, month);
