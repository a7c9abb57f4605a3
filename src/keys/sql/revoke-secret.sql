-- keys/sql/revoke-secret.sql
-- Revokes one secret of a key for good. No row: it is already revoked, or does not exist.
-- $1 key_id  $2 secret_id  $3 change_id
with revoked as (
  update key_secrets set revoked_at = now()
   where key_id = $1 and secret_id = $2 and revoked_at is null
  returning key_id
)
insert into key_changes (change_id, key_id)
select $3, key_id from revoked
returning key_id;
