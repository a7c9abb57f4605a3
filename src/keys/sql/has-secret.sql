-- keys/sql/has-secret.sql
-- One row if the secret belongs to the key, also if it is revoked or expired.
-- $1 key_id  $2 secret_id
select secret_id from key_secrets where key_id = $1 and secret_id = $2;
