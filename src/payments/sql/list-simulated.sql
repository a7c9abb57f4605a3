-- Lists what was pretended to arrive for an order.
-- $1 order_id
select deposit_id, asset, network, decimals, atoms, confirmations, lost, first_seen_at
from simulated_payments
where order_id = $1
order by first_seen_at, deposit_id;
