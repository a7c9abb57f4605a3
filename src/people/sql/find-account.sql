-- people/sql/find-account.sql
-- The name and the status of an account. No row: there is none.
-- $1 account_id
select name, status from accounts where account_id = $1;
