-- Records that a person has dealt with facts of an order. The caller has locked it.
-- $1 order_id  $2 facts
update payment_orders
set handled = array(select distinct unnest(handled || $2::text[]) order by 1)
where order_id = $1;
