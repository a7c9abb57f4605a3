-- Stores how a node describes itself.
-- $1 node_id  $2 its description
update nodes set report = $2, reported_at = now() where node_id = $1;
