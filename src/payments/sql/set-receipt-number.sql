-- Notes the number of the receipt with its order.
-- $1 order_id  $2 number
update payment_orders set receipt_number = $2 where order_id = $1 and receipt_number is null;
