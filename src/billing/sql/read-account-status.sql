-- Reads the status of an account. No row: no such account.
-- $1 account_id
select status from accounts where account_id = $1;
