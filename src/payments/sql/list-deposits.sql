-- Lists what arrived for some orders, oldest first.
-- $1 order_ids
select order_id, external_id, asset, network, decimals, atoms, market_rate, usd_micro, valued_by,
  processor_usd_micro, state, returned, confirmations, confirmations_needed, first_seen_at,
  settled_at
from payment_deposits
where order_id = any($1::text[])
order by first_seen_at, external_id;
