-- Locks the pool of a transfer or of a hold to release. No row: no such account.
-- $1 account_id  $2 family
select posted, held, in_debt, account_status
from pools
where account_id = $1 and "family" = $2
for update;
