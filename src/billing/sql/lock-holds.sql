-- Locks holds in the order of their ids. A settled request has no hold and no row.
-- $1 request_ids
select request_id, amount
from holds
where request_id = any($1::text[])
order by request_id
for update;
