-- Removes a node that stopped or died, unless holds of it are left.
-- $1 node_id
delete from nodes
where node_id = $1 and not exists (select 1 from holds where node_id = $1)
returning node_id;
