-- Locks an order until the end of the transaction. Read it with the next statement: what this one
-- waited for is not in its own snapshot.
-- $1 order_id
select order_id from payment_orders where order_id = $1 for update;
