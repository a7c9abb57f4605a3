-- Cancels an order. The caller has locked it.
-- $1 order_id
update payment_orders set cancelled_at = now() where order_id = $1;
