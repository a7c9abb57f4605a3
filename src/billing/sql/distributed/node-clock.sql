-- As for PostgreSQL, without the lock: `nodes` has a copy on every server, and a lock on all of
-- them would make each commit one of all servers. A hold that a node places while it is declared
-- dead is settled as one of a node that is gone; the node learns of it at its next heartbeat.
-- $1 node_id
select now() as at, date_trunc('month', now() at time zone 'utc')::date as month
from nodes
where node_id = $1;
