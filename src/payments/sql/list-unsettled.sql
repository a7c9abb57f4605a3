-- Lists the payments of a chain that are in a block and have not settled, each with what its
-- account was paid on this chain within a day before, in micro-dollars. Null: partly unknown.
-- $1 processor  $2 chain
select p.external_id, p.height, (
  select case when bool_and(coalesce(o.rate, d.market_rate) is not null)
    then sum(trunc(d.atoms * coalesce(o.rate, d.market_rate)
      / 10::numeric ^ d.decimals))::text end
  from deposit_addresses of_account
  join chain_payments d on d.address = of_account.address
  left join payment_orders o on o.order_id = d.order_id
  where of_account.account_id = a.account_id and d.processor = $1 and d.chain = $2
    and d.state <> 'lost' and d.first_seen_at > p.first_seen_at - interval '1 day'
) as usd_micro
from chain_payments p
join deposit_addresses a on a.address = p.address
where p.processor = $1 and p.chain = $2 and p.state = 'seen' and p.height is not null;
