-- keys/sql/page-account-keys.sql
-- Ids of an account's keys after a given one, oldest first.
-- $1 account_id  $2 key_id to start after, empty for the first  $3 most rows
select key_id from keys where account_id = $1 and key_id > $2 order by key_id limit $3;
