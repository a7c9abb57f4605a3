-- Reads the registered nodes and their heartbeats.
select node_id, heartbeat from nodes order by node_id;
