-- Leaves as dealt with only what was decided: a refund that was given up dealt with nothing. The
-- caller has locked the order.
-- $1 order_id
update payment_orders
set handled = array(
  select distinct fact
  from payment_decisions d
  cross join lateral unnest(d.facts) as fact
  where d.order_id = $1 and d.state = 'done'
  order by 1
)
where order_id = $1;
