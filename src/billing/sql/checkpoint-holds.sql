-- Stores the metered usage of running requests; a count never decreases. Locks the holds in the
-- order of their ids, as settlement does. Returns the requests that still run.
-- $1 request_ids  $2 and on: tokens, one array per category
with ordered as (
  select request_id from holds where request_id = any($1::text[]) order by request_id for update
)
update holds
set (each_category(#)) = row (each_category(greatest(holds.#, d.#)))
from ordered, unnest($1::text[], each_category($2::integer[])) as d (request_id, each_category(#))
where holds.request_id = ordered.request_id and holds.request_id = d.request_id
returning holds.request_id;
