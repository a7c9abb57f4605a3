-- Stores an order that its processor has still to open. Until then it counts as open for a minute.
-- $1 order_id  $2 account_id  $3 family  $4 idempotency_key  $5 usd_micro  $6 processor  $7 method
-- $8 asset  $9 network  $10 decimals  $11 created_by  $12 to $14 name, address and tax id of the
-- seller  $15 to $17 those of the buyer
insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro, processor,
  method, asset, network, decimals, created_by, seller_name, seller_address, seller_tax_id,
  buyer_name, buyer_address, buyer_tax_id, quoted_until, watched_until)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
  now() + interval '1 minute', now() + interval '1 minute');
