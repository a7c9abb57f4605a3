-- keys/sql/page-keys.sql
-- Ids of all keys after a given one, oldest first.
-- $1 key_id to start after, empty for the first  $2 most rows
select key_id from keys where key_id > $1 order by key_id limit $2;
