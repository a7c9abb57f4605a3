-- Lists the accounts with a pool in debt, and what its pools lack together.
-- $1 rows at most
select account_id, sum(greatest(held - posted, 0))::bigint as debt
from pools
where in_debt
group by account_id
order by account_id desc
limit $1;
