-- keys/sql/read-status.sql
-- The status of a key, active or revoked. No row: no such key.
-- $1 key_id
select status from keys where key_id = $1;
