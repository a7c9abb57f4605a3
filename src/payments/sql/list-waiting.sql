-- Lists the payments in blocks that have no order, with their accounts, oldest first.
-- $1 processor  $2 chain
select p.external_id, p.address, p.asset, p.decimals, p.atoms, p.market_rate, p.first_seen_at,
  a.account_id, a."family"
from chain_payments p
join deposit_addresses a on a.address = p.address
where p.processor = $1 and p.chain = $2 and p.order_id is null and p.state <> 'lost'
  and p.height is not null
order by p.first_seen_at, p.external_id
limit 1000;
