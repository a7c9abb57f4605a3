-- Finds the newest order of Ether whose quote stood at some time between two moments. Blocks can
-- say a time of some minutes ago.
-- $1 processor  $2 chain  $3 address  $4 from  $5 to
select o.order_id, greatest(o.created_at, $4) as at
from payment_orders o
join deposit_addresses a on a.account_id = o.account_id and a."family" = o."family"
where a.address = $3 and o.processor = $1 and o.network = $2 and o.asset = 'ETH'
  and o.kind = 'pack' and o.external_id is not null
  and o.created_at - interval '10 minutes' <= $5 and o.quoted_until >= $4
order by o.created_at desc
limit 1;
