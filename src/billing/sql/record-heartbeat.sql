-- Records a heartbeat of a node. No row: the node was declared dead.
-- $1 node_id
update nodes set heartbeat = heartbeat + 1 where node_id = $1 returning heartbeat;
