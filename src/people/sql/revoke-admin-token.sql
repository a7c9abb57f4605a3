-- people/sql/revoke-admin-token.sql
-- Revokes an admin token, unless it is revoked already. No row: there is none.
-- $1 token_id
update admin_tokens set revoked_at = coalesce(revoked_at, now())
 where token_id = $1
returning token_id, name, scope, shown, created_by, created_at, used_at, revoked_at;
