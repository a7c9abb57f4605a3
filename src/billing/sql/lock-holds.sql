-- Locks holds in the order of their ids. A request that was settled has none.
-- $1 request_ids
select request_id, amount
from holds
where request_id = any($1::text[])
order by request_id
for update;
