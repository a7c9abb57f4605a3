-- Takes holds out of the months of keys whose pools are locked, and adds what was spent. A charge also says when the key was last used.
-- $1 key_ids  $2 months  $3 spent  $4 held, signed  $5 used
update key_months
set spent = key_months.spent + d.spent, held = key_months.held + d.held,
  last_used_at = case when d.used then greatest(key_months.last_used_at, now()) else key_months.last_used_at end
from unnest($1::text[], $2::date[], $3::bigint[], $4::bigint[], $5::boolean[]) as d (key_id, month, spent, held, used)
where key_months.key_id = d.key_id and key_months.month = d.month;
