-- keys/sql/revoke-key.sql
-- Revokes an active key for good. No row: it is already revoked, or does not exist.
-- $1 key_id  $2 change_id
with revoked as (
  update keys set status = 'revoked', revoked_at = now() where key_id = $1 and status = 'active'
  returning key_id
)
insert into key_changes (change_id, key_id)
select $2, key_id from revoked
returning key_id;
