-- Asks for a look at an order, at once. No row: the processor has made no such order.
-- $1 processor  $2 external_id
update payment_orders
set hook_at = now(), next_look_at = now()
where processor = $1 and external_id = $2
returning order_id;
