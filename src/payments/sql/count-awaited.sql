-- Counts what is awaited on a chain: open orders of a coin, and payments in no block.
-- $1 processor  $2 chain  $3 asset
select (
  select count(*) from payment_orders
  where processor = $1 and network = $2 and asset = $3 and external_id is not null
    and state in ('open', 'seen') and quoted_until > now() - interval '15 minutes'
) + (
  select count(*) from chain_payments
  where processor = $1 and chain = $2 and height is null and state <> 'lost'
) as awaited;
