-- Adds holds to locked pools.
-- $1 account_ids  $2 families  $3 held
update pools
set held = pools.held + d.held
from unnest($1::text[], $2::text[], $3::bigint[]) as d (account_id, family, held)
where pools.account_id = d.account_id and pools.family = d.family;
