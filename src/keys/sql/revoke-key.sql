-- keys/sql/revoke-key.sql
-- Ends an active key for good. No row: it is revoked already, or absent.
-- $1 key_id  $2 change_id
with revoked as (
  update keys set status = 'revoked', revoked_at = now() where key_id = $1 and status = 'active'
  returning key_id
)
insert into key_changes (change_id, key_id)
select $2, key_id from revoked
returning key_id;
