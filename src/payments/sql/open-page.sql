-- Records that somebody watches an order, so that it is looked at more often.
-- $1 order_id  $2 milliseconds  $3 pace of looks in milliseconds
update payment_orders
set page_open_until = now() + $2::integer * interval '1 millisecond',
  next_look_at = least(next_look_at,
    greatest(now(), looked_at + $3::integer * interval '1 millisecond'))
where order_id = $1 and next_look_at is not null and failed_looks = 0;
