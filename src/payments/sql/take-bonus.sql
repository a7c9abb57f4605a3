-- Notes that a refund takes the bonuses that needed its order. The caller has locked the order.
-- $1 order_id  $2 n of the refund
update promotion_uses set refund_n = $2 where order_id = $1 and refund_n is null;
