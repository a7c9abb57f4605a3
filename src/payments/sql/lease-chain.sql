-- Takes the right to read a chain. No row: it is not due, or somebody else reads it.
-- $1 processor  $2 chain  $3 lease in milliseconds
update chains
set lease_until = now() + $3::integer * interval '1 millisecond'
where processor = $1 and chain = $2 and next_read_at <= now()
  and (lease_until is null or lease_until < now())
returning height, hash, lease_until::text as lease;
