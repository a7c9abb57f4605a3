-- Stores the metered usage of running requests; a count never decreases. Locks the holds in the
-- order of their ids, as settlement does. Returns the requests that still run.
-- $1 account_ids  $2 request_ids  $3 and on: tokens, one array per category
with ordered as (
  select h.account_id, h.request_id
  from holds h
  join unnest($1::text[], $2::text[]) as d (account_id, request_id) using (account_id, request_id)
  order by h.account_id, h.request_id
  for update of h
)
update holds
set (each_category(#)) = row (each_category(greatest(holds.#, d.#)))
from ordered
join unnest($1::text[], $2::text[], each_category($3::integer[]))
  as d (account_id, request_id, each_category(#)) using (account_id, request_id)
where holds.account_id = ordered.account_id and holds.request_id = ordered.request_id
returning holds.account_id, holds.request_id;
