-- Forgets the blocks above a height: the chain left them.
-- $1 processor  $2 chain  $3 height
delete from chain_blocks where processor = $1 and chain = $2 and height > $3;
