-- The seconds since the first charge after another was settled. No row: there is none.
-- $1, $2, $3 after this settled_at, request_id and account_id
select extract(epoch from now() - c.settled_at)::float8 as seconds
from charges c
where c.amount >= 0 and (c.settled_at, c.request_id, c.account_id) > ($1::timestamptz, $2, $3)
order by c.settled_at, c.request_id
limit 1;
