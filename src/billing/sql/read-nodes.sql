select node_id, heartbeat from nodes order by node_id;
