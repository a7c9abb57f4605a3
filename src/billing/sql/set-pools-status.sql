-- Copies the status of an account to its pools, which the caller has locked.
-- $1 account_id  $2 status
update pools set account_status = $2 where account_id = $1;
