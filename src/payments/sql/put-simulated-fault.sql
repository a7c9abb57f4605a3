-- Lets the simulated processor report a fault of an order.
-- $1 order_id  $2 fault
insert into simulated_faults (order_id, fault) values ($1, $2) on conflict do nothing;
