-- Accounts, oldest first, after the given one.
-- $1 account_id of the place, empty for the start  $2 most rows
select account_id, name, created_at from accounts where account_id > $1 order by account_id limit $2;
