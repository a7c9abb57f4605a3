-- Adds to locked pools.
-- $1 account_ids  $2 families  $3 posted, signed  $4 held, signed
update pools
set posted = pools.posted + d.posted, held = pools.held + d.held
from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as d (account_id, family, posted, held)
where pools.account_id = d.account_id and pools.family = d.family;
