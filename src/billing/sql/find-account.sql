-- Finds an account. No row: no such account.
-- $1 account_id
select account_id, name, created_at from accounts where account_id = $1;
