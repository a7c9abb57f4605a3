-- Reads the spent and held credits of keys, in the months in which growing holds were admitted.
-- $1 account_ids  $2 key_ids  $3 months
select m.key_id, m.month, m.spent, m.held
from key_months m
join unnest($1::text[], $2::text[], $3::date[]) as wanted (account_id, key_id, month)
  using (account_id, key_id, month);
