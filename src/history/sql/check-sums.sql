-- How many charges of a month are summed up, and how many of them break a rule of the ledger.
-- $1 month
select coalesce(sum(requests), 0)::bigint as charges, coalesce(sum(broken), 0)::bigint as broken
from closing_sums
where month = $1::date;
