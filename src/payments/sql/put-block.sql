-- Remembers a block that was read, and forgets those of long ago.
-- $1 processor  $2 chain  $3 height  $4 hash  $5 blocks that are kept
with forgotten as (
  delete from chain_blocks
  where processor = $1 and chain = $2 and height < (
    select b.height from chain_blocks b
    where b.processor = $1 and b.chain = $2
    order by b.height desc
    offset $5::integer limit 1
  )
)
insert into chain_blocks (processor, chain, height, hash) values ($1, $2, $3, $4)
on conflict (processor, chain, height) do update set hash = excluded.hash;
