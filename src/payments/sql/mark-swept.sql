-- Marks the orders of Ether that were open when their address was emptied.
-- $1 processor  $2 chain  $3 address  $4 from  $5 to
update payment_orders o
set faults = array(select distinct unnest(o.faults || 'swept'::text) order by 1),
  hook_at = now(), next_look_at = now()
from deposit_addresses a
where a.address = $3 and a.account_id = o.account_id and a."family" = o."family"
  and o.processor = $1 and o.network = $2 and o.asset = 'ETH' and o.external_id is not null
  and o.created_at - interval '10 minutes' <= $5 and o.quoted_until >= $4
returning o.order_id;
