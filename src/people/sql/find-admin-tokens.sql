-- people/sql/find-admin-tokens.sql
-- The admin tokens with these digests, and records their use, at most once a minute.
-- $1 digests
with touched as (
  update admin_tokens set used_at = now()
   where digest in (select digest from admin_tokens
                     where digest = any($1::bytea[]) and revoked_at is null
                       and (used_at is null or used_at < now() - interval '50 seconds')
                       for update skip locked)
)
select digest, token_id, name, scope, revoked_at is not null as is_revoked
  from admin_tokens
 where digest = any($1::bytea[]);
