-- Gives back the right to open an order, which from now on counts as no open one.
-- $1 order_id
update payment_orders
set lease_until = null, quoted_until = now(), watched_until = now()
where order_id = $1 and external_id is null;
