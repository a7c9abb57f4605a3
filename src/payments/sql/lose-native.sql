-- Gives up the payments of Ether above a height, which the chain left: their ids never return.
-- $1 processor  $2 chain  $3 height
with lost as (
  update chain_payments
  set state = 'lost', height = null, hash = null
  where processor = $1 and chain = $2 and asset = 'ETH' and height > $3
  returning external_id, address, atoms
), moved as (
  update address_balances b
  set height = $3,
    atoms = b.atoms - (select coalesce(sum(l.atoms), 0) from lost l where l.address = b.address)
  where b.processor = $1 and b.chain = $2 and b.height > $3
)
select external_id from lost;
