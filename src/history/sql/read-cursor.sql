-- How far the charges are in a sink.
-- $1 sink
select settled_at::text as settled_at, request_id, account_id, file, bytes
from sink_cursors
where sink = $1;
