-- keys/sql/read-status.sql
-- $1 key_id
select status from keys where key_id = $1;
