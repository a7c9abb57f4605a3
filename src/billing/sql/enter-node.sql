-- Enters a node among those that live.
-- $1 node_id
insert into nodes (node_id) values ($1);
