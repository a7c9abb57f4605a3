-- people/sql/find-account.sql
-- The name of an account. No row: there is none.
-- $1 account_id
select name from accounts where account_id = $1;
