-- How many charges a closing has summed up, and how many of them break a rule of the ledger.
-- $1 closing_id
select coalesce(sum(requests), 0)::bigint as charges, coalesce(sum(broken), 0)::bigint as broken
from closing_sums
where closing_id = $1;
