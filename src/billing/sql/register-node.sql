-- Registers a node as live.
-- $1 node_id  $2 process, which other processes of the same machine can look up, or ''
insert into nodes (node_id, process) values ($1, $2);
