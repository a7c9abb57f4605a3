-- Finds how far a chain was read.
-- $1 processor  $2 chain
select tip, now() - read_at < interval '2 minutes' as fresh
from chains
where processor = $1 and chain = $2;
