-- Records a heartbeat of a node. No row: the node was declared dead.
-- $1 node_id
update nodes set silent_polls = 0, polled_at = now() where node_id = $1 returning node_id;
