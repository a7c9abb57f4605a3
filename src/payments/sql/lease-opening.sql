-- Takes the right to let the processor open an order. No row: it is open, or somebody else has
-- the right.
-- $1 order_id  $2 lease in milliseconds
update payment_orders
set lease_until = now() + $2::integer * interval '1 millisecond'
where order_id = $1 and external_id is null and (lease_until is null or lease_until < now())
returning order_id;
