-- Sets the amounts of holds whose pools are locked.
-- $1 request_ids  $2 amounts
update holds
set amount = d.amount
from unnest($1::text[], $2::bigint[]) as d (request_id, amount)
where holds.request_id = d.request_id;
