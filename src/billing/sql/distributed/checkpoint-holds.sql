-- Stores the metered usage of running requests; a count never decreases. Returns the requests that
-- still run. The shards are written at once, so there is no order among them.
-- $1 account_ids  $2 request_ids  $3 and on: tokens, one array per category
update holds
set (each_category(#)) = row (each_category(greatest(holds.#, d.#)))
from unnest($1::text[], $2::text[], each_category($3::integer[]))
  as d (account_id, request_id, each_category(#))
where holds.account_id = d.account_id and holds.request_id = d.request_id
  of_accounts(holds.account_id)
returning holds.account_id, holds.request_id;
