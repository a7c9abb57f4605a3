-- Lists what arrived for an order, as its chain says it.
-- $1 processor  $2 order_id
select external_id, chain, asset, decimals, atoms, state, height, market_rate, needed, first_seen_at
from chain_payments
where processor = $1 and order_id = $2
order by first_seen_at, external_id;
