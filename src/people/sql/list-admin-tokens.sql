-- people/sql/list-admin-tokens.sql
-- Admin tokens, oldest first.
-- $1 token_id to start after, empty for the first  $2 limit
select token_id, name, scope, shown, created_by, created_at, used_at, revoked_at
  from admin_tokens
 where token_id > $1
 order by token_id
 limit $2;
