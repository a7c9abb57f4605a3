-- keys/sql/revoke-account-keys.sql
-- Revokes all active keys of an account for good. Returns them.
-- $1 account_id  $2 change_id, to which each key adds its own
with revoked as (
  update keys set status = 'revoked', revoked_at = now() where account_id = $1 and status = 'active'
  returning key_id
)
insert into key_changes (change_id, key_id)
select $2 || '_' || key_id, key_id from revoked
returning key_id;
