-- Reads the versions of orders that somebody watches.
-- $1 order_ids
select order_id, version from payment_orders where order_id = any($1::text[]);
