-- Begins to watch the balances of addresses that are new. They are expected to be unused.
-- $1 processor  $2 chain  $3 height
insert into address_balances (processor, chain, address, atoms, nonce, height, block_at)
select $1, $2, a.address, 0, 0, $3, a.created_at
from deposit_addresses a
where a.address like '0x%' and not exists (
  select from address_balances b
  where b.processor = $1 and b.chain = $2 and b.address = a.address
)
on conflict (processor, chain, address) do nothing;
