-- Ends the reading of a chain.
-- $1 processor  $2 chain  $3 the lease  $4 the newest block, or null: the reading failed
-- $5 milliseconds until the next reading
update chains
set tip = coalesce($4, tip), read_at = case when $4::bigint is null then read_at else now() end,
  lease_until = null, next_read_at = now() + $5::integer * interval '1 millisecond'
where processor = $1 and chain = $2 and lease_until::text = $3;
