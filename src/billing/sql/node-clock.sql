-- Returns the database's time of this transaction and its UTC month, and locks the row of this node
-- against deletion. No row: the node was declared dead, and must not admit requests.
-- $1 node_id
select now() as at, date_trunc('month', now() at time zone 'utc')::date as month
from nodes
where node_id = $1
for key share;
