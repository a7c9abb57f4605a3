-- keys/sql/has-secret.sql
-- One row when the key has, or had, this secret.
-- $1 key_id  $2 secret_id
select secret_id from key_secrets where key_id = $1 and secret_id = $2;
