-- keys/sql/page-account-keys.sql
-- Ids of an account's keys after one, oldest first.
-- $1 account_id  $2 after this key_id  $3 at most
select key_id from keys where account_id = $1 and key_id > $2 order by key_id limit $3;
