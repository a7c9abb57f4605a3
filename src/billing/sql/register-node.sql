-- Registers a node as live.
-- $1 node_id
insert into nodes (node_id) values ($1);
