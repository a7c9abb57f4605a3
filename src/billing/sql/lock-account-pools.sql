-- Locks both pools of an account: no request of it is admitted meanwhile.
-- $1 account_id
select "family", posted, held, in_debt
from pools
where account_id = $1
order by "family"
for update;
