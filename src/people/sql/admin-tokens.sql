-- timeout_ms=5000

-- name: InsertAdminToken :run
-- Adds an admin token. Changes no row: the name is or was in use.
-- :person_id?  who made it; null: the machine
insert into admin_tokens
  (digest, token_id, name, scope, shown, created_by, person_id, allowed_addresses)
values (:digest, :token_id, :name, :scope, :hint, :created_by, :person_id,
  :allowed_addresses::text[])
on conflict do nothing;

-- name: FindAdminToken :optional
-- An admin token. No row: there is none, or it waits for an approval.
select token_id, name, scope, shown as hint, created_by, created_at, used_at as last_used_at,
       revoked_at, allowed_addresses
  from admin_tokens
 where token_id = :token_id;

-- name: FindAdminTokens :many
-- The admin tokens with these digests, and records their use, at most once a minute.
with touched as (
  update admin_tokens set used_at = now()
   where digest in (select digest from admin_tokens
                     where digest = any(:digests::bytea[]) and revoked_at is null
                       and (used_at is null or used_at < now() - interval '50 seconds')
                       for update skip locked)
)
select digest, token_id, name, scope, shown as hint, person_id, allowed_addresses,
       revoked_at is not null as "is_revoked!"
  from admin_tokens
 where digest = any(:digests::bytea[]);

-- name: ListAdminTokens :many
-- Admin tokens, oldest first.
-- :after_id  empty: from the first
select token_id, name, scope, shown as hint, created_by, created_at, used_at as last_used_at,
       revoked_at, allowed_addresses
  from admin_tokens
 where token_id > :after_id
 order by token_id
 limit :rows;

-- name: LockAdminToken :optional
-- Locks an admin token that is not revoked until the end of the transaction. No row: there is none.
select token_id from admin_tokens where token_id = :token_id and revoked_at is null for share;

-- name: ShareTokenByName :optional
-- An admin token that is not revoked until the end of the transaction. No row: there is none.
select token_id from admin_tokens where name = :name and revoked_at is null for share;

-- name: RevokeAdminToken :optional
-- Revokes an admin token, unless it is revoked already. No row: there is none.
update admin_tokens set revoked_at = coalesce(revoked_at, now())
 where token_id = :token_id
returning token_id, name, scope, shown as hint, created_by, created_at, used_at as last_used_at,
          revoked_at, allowed_addresses;
