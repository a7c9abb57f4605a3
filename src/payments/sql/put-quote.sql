-- Stores the quote of a processor, which begins the watching. No row: the order has one.
-- $1 order_id  $2 external_id  $3 atoms  $4 rate  $5 pay_to  $6 memo  $7 checkout_url
-- $8 milliseconds for which the quote stands  $9 milliseconds of watching  $10 until the first look
update payment_orders
set external_id = $2, quoted_atoms = $3, rate = $4, pay_to = $5, memo = $6, checkout_url = $7,
  quoted_until = now() + $8::bigint * interval '1 millisecond',
  watched_until = now() + $9::bigint * interval '1 millisecond',
  next_look_at = now() + $10::bigint * interval '1 millisecond',
  lease_until = null, version = version + 1
where order_id = $1 and external_id is null
returning order_id;
