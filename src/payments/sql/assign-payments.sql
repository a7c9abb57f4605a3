-- Gives each payment that has no order the one of its coin and chain whose quote covered its first
-- sight: the newest. Blocks can say a time of some minutes ago.
-- $1 processor  $2 chain
update chain_payments p
set order_id = (
  select o.order_id from payment_orders o
  join deposit_addresses a on a.account_id = o.account_id and a."family" = o."family"
  where a.address = p.address and o.processor = p.processor and o.network = p.chain
    and o.asset = p.asset and o.kind = 'pack' and o.external_id is not null
    and p.first_seen_at between o.created_at - interval '10 minutes' and o.quoted_until
  order by o.created_at desc
  limit 1
)
where p.processor = $1 and p.chain = $2 and p.order_id is null and p.state <> 'lost';
