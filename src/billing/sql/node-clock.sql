-- The database's time of this transaction and its UTC month. Locks this node's row against
-- deletion, so that a node which was declared dead admits nothing: no row means exactly that.
-- $1 node_id
select now() as at, date_trunc('month', now() at time zone 'utc')::date as month
from nodes
where node_id = $1
for key share;
