-- Lists the balances to compare next: those that an order of Ether awaits, then the oldest.
-- $1 processor  $2 chain  $3 below this height  $4 at most
select b.address, b.atoms, b.nonce, b.height, b.block_at
from address_balances b
where b.processor = $1 and b.chain = $2 and b.height < $3
order by exists (
  select from payment_orders o
  join deposit_addresses a on a.account_id = o.account_id and a."family" = o."family"
  where a.address = b.address and o.processor = $1 and o.network = $2 and o.asset = 'ETH'
    and o.state in ('open', 'seen', 'partly_paid', 'expired', 'cancelled')
    and o.quoted_until > now() - interval '2 hours'
) desc, b.height, b.address
limit $4;
