-- Locks holds. A distributed engine locks rows of several shards by writing them.
-- $1 account_ids  $2 request_ids
update holds
set amount = holds.amount
from unnest($1::text[], $2::text[]) as d (account_id, request_id)
where holds.account_id = d.account_id and holds.request_id = d.request_id
  of_accounts(holds.account_id)
returning holds.account_id, holds.request_id, holds.amount;
