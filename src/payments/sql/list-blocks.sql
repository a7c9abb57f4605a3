-- Lists the blocks of a chain that are remembered, newest first.
-- $1 processor  $2 chain
select height, hash from chain_blocks
where processor = $1 and chain = $2
order by height desc;
