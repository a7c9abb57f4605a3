-- Ends the decision of an order that waits for its approval.
-- $1 order_id
update payment_decisions set state = 'replaced' where order_id = $1 and state = 'pending';
