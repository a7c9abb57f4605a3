-- Stores an order for what arrived without one. No row: it was stored before.
-- $1 order_id  $2 account_id  $3 family  $4 idempotency_key  $5 usd_micro  $6 processor  $7 method
-- $8 asset  $9 network  $10 decimals  $11 external_id  $12 atoms  $13 rate  $14 address
-- $15 created_by  $16 to $18 name, address and tax id of the seller  $19 to $21 those of the buyer
-- $22 the end of its quote  $23 milliseconds of watching
insert into payment_orders (order_id, account_id, "family", idempotency_key, kind, usd_micro,
  processor, method, asset, network, decimals, external_id, quoted_atoms, rate, pay_to, created_by,
  seller_name, seller_address, seller_tax_id, buyer_name, buyer_address, buyer_tax_id,
  quoted_until, watched_until, next_look_at)
values ($1, $2, $3, $4, 'direct', $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
  $19, $20, $21, $22, now() + $23::bigint * interval '1 millisecond', now())
on conflict (account_id, idempotency_key) do nothing
returning order_id;
