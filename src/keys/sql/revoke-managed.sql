-- keys/sql/revoke-managed.sql
-- Revokes, for good, the keys of an account that somebody manages. Returns those that it revoked.
-- $1 account_id  $2 managed_by  $3 change_id, to which each key adds its own
with revoked as (
  update keys set status = 'revoked', revoked_at = now()
   where account_id = $1 and managed_by = $2 and status = 'active'
  returning key_id
)
insert into key_changes (change_id, key_id)
select $3 || '_' || key_id, key_id from revoked
returning key_id;
