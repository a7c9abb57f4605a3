-- Stores how far a chain was read. The caller has locked it.
-- $1 processor  $2 chain  $3 height  $4 hash
update chains set height = $3, hash = $4 where processor = $1 and chain = $2;
