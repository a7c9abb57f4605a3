-- keys/sql/page-keys.sql
-- Ids of all keys after one, oldest first.
-- $1 after this key_id  $2 at most
select key_id from keys where key_id > $1 order by key_id limit $2;
