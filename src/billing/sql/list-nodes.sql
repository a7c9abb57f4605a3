-- Lists all nodes, in the order of their starts.
select node_id, started_at, silent_polls, report, reported_at
from nodes
order by node_id;
