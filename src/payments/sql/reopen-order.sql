-- Lets the quote of an order stand again. The caller has locked it.
-- $1 order_id  $2 milliseconds for which it stands
update payment_orders
set cancelled_at = null, quoted_until = now() + $2::integer * interval '1 millisecond',
  watched_until = greatest(watched_until, now() + interval '1 day')
where order_id = $1;
