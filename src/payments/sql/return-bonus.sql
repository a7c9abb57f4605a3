-- Notes that a refund which ended without money gives its bonuses back. The caller has locked the
-- order.
-- $1 order_id  $2 n of the refund
update promotion_uses set refund_n = null where order_id = $1 and refund_n = $2;
