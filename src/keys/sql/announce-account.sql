-- keys/sql/announce-account.sql
-- Tells every process that the keys of an account changed, because the account did. Returns them.
-- $1 account_id  $2 change_id, to which each key adds its own
insert into key_changes (change_id, key_id)
select $2 || '_' || key_id, key_id from keys where account_id = $1 and status = 'active'
returning key_id;
