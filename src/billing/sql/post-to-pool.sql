-- Adds a transfer to its pool. The caller has locked the pool. A pool is in debt while it has less
-- than its running requests hold.
-- $1 account_id  $2 family  $3 amount, signed
update pools
set posted = posted + $3, in_debt = posted + $3 < held or posted + $3 < 0
where account_id = $1 and "family" = $2;
