-- An account. No row: there is none of this id.
-- $1 account_id
select account_id, name, created_at from accounts where account_id = $1;
