-- The nodes of this ledger with their heartbeats.
select node_id, heartbeat from nodes order by node_id;
