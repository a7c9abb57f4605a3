-- Locks a pool for a transfer or a release. No row: there is no such account.
-- $1 account_id  $2 family
select posted, held, in_debt from pools where account_id = $1 and family = $2 for update;
