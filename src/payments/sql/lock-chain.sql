-- Locks a chain that this node reads. No row: the lease has ended.
-- $1 processor  $2 chain  $3 the lease
select height, hash from chains
where processor = $1 and chain = $2 and lease_until::text = $3
for update;
