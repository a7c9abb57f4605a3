-- Ends the quote of a simulated order now, unless it has ended.
-- $1 order_id  $2 true: the watching, too
update payment_orders
set quoted_until = least(quoted_until, now()),
  watched_until = case when $2::boolean then least(watched_until, now()) else watched_until end,
  next_look_at = least(next_look_at, now() + interval '1 second')
where order_id = $1;
