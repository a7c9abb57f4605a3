-- Locks pools. A distributed engine locks rows of several shards by writing them.
-- $1 account_ids  $2 families
update pools
set held = pools.held
from unnest($1::text[], $2::text[]) as d (account_id, "family")
where pools.account_id = d.account_id and pools."family" = d."family" of_accounts(pools.account_id)
returning pools.account_id, pools."family", pools.posted, pools.held, pools.in_debt;
