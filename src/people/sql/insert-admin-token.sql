-- people/sql/insert-admin-token.sql
-- Adds an admin token. No row: the name is or was in use.
-- $1 digest  $2 token_id  $3 name  $4 scope  $5 shown  $6 created_by
insert into admin_tokens (digest, token_id, name, scope, shown, created_by)
values ($1, $2, $3, $4, $5, $6)
on conflict do nothing
returning token_id, name, scope, shown, created_by, created_at, used_at, revoked_at;
