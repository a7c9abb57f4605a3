-- keys/sql/rotate-key.sql
-- Adds a secret to an active key. The earlier secrets expire after the overlap, or at an earlier
-- expiry that they already have. No row: the key is revoked or does not exist.
-- $1 key_id  $2 change_id  $3 digest  $4 secret_id  $5 shown  $6 overlap in milliseconds
with active as (
  -- The lock keeps the key from being revoked before the new secret is written.
  select key_id from keys where key_id = $1 and status = 'active' for no key update
), ended as (
  update key_secrets
     set expires_at = least(expires_at, now() + $6::float8 * interval '1 millisecond')
   where key_id in (select key_id from active) and revoked_at is null
), minted as (
  insert into key_secrets (digest, secret_id, key_id, shown)
  select $3, $4, key_id, $5 from active
)
insert into key_changes (change_id, key_id)
select $2, key_id from active
returning key_id;
