-- Adds to locked pools. A debt ends when what is left covers what is held.
-- $1 account_ids  $2 families  $3 posted, signed  $4 held, signed
update pools
set posted = pools.posted + d.posted, held = pools.held + d.held,
  in_debt = pools.in_debt and (pools.posted + d.posted < pools.held + d.held or pools.posted + d.posted < 0)
from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as d (account_id, family, posted, held)
where pools.account_id = d.account_id and pools.family = d.family;
