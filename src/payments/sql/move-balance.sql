-- Stores a balance, unless another node has done so. No row: it has.
-- $1 processor  $2 chain  $3 address  $4 its height before  $5 atoms  $6 nonce  $7 height
-- $8 time of that block
update address_balances
set atoms = $5, nonce = $6, height = $7, block_at = $8
where processor = $1 and chain = $2 and address = $3 and height = $4
returning address;
