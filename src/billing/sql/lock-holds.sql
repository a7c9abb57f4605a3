-- Locks holds in the order of their ids. A settled request has no hold and no row.
-- $1 account_ids  $2 request_ids
select h.account_id, h.request_id, h.amount
from holds h
join unnest($1::text[], $2::text[]) as d (account_id, request_id) using (account_id, request_id)
order by h.account_id, h.request_id
for update of h;
