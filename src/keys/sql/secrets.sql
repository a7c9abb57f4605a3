-- timeout_ms=5000

-- name: FindSecrets :many
-- The secrets with these digests, with their keys. No row for an unknown digest.
-- =status 'active' | 'paused' | 'expired' | 'revoked'
select s.digest, s.secret_id, s.shown as hint, s.created_at as secret_created_at,
       s.expires_at as secret_expires_at, s.revoked_at as secret_revoked_at,
       -- By this server's clock, so that nodes with other clocks agree. Of the key and the secret,
       -- whichever expires first. Null: neither does.
       (extract(epoch from least(s.expires_at, k.expires_at) - clock_timestamp()) * 1000)::float8
         as "expires_in_ms?",
       coalesce(s.last_used_at < now() - interval '1 minute', true) as "use_is_due!",
       case when k.status = 'revoked' then 'revoked'
            when k.expires_at <= now() then 'expired'
            when k.paused then 'paused'
            else 'active' end as "status!",
       k.key_id, k.account_id, k."family", k.name, k.requests_per_minute, k.allowed_models,
       k.account_reader, k.created_by, k.managed_by, k.limited_by_owner, k.paused,
       case when k.paused then coalesce(k.paused_at, k.created_at) end as "paused_at?",
       k.paused_by_owner, k.expires_at,
       k.created_at, k.revoked_at, k.allowed_addresses, a.status as account_status,
       a.price_list_id,
       b.day_limit, b.week_limit, b.month_limit, b.total_limit, b.running_limit,
       b.is_limited or exists (
         select 1
           from budgets m
          where m.account_id = k.account_id and m."family" = k."family" and m.payer = k.managed_by
            and m.is_limited) as "is_limited!"
  from key_secrets s
  join keys k on k.key_id = s.key_id
  join accounts a on a.account_id = k.account_id
  join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
 where s.digest = any(:digests::bytea[]);

-- name: ReadSecrets :many
-- Secrets of these keys, newest first: all valid ones, and the newest twenty in any state.
select key_id, secret_id, shown as hint, created_at, expires_at, revoked_at, last_used_at
  from (select key_id, secret_id, shown, created_at, expires_at, revoked_at, last_used_at,
               row_number() over (
                 partition by key_id order by created_at desc, secret_id desc
               ) as rank
          from key_secrets
         where key_id = any(:key_ids::text[])) ranked
 where rank <= 20 or (revoked_at is null and (expires_at is null or expires_at > now()))
 order by key_id, rank;

-- name: ReadLiveSecrets :many
-- Secrets of a key that are not revoked, with the status of its account. Expired ones are included:
-- a request that started before the expiry may finish.
select s.secret_id, a.status as account_status
  from key_secrets s
  join keys k on k.key_id = s.key_id
  join accounts a on a.account_id = k.account_id
 where s.key_id = :key_id and s.revoked_at is null and k.status = 'active';

-- name: HasSecret :optional
-- One row if the secret belongs to the key, also if it is revoked or expired.
select secret_id from key_secrets where key_id = :key_id and secret_id = :secret_id;

-- name: RotateKey :run
-- Adds a secret to an active key. The earlier secrets expire after the overlap, or at an earlier
-- expiry that they already have. Changes no row: the key is revoked or does not exist.
with active as (
  -- The lock keeps the key from being revoked before the new secret is written.
  select key_id from keys where key_id = :key_id and status = 'active' for no key update
), ended as (
  update key_secrets
     set expires_at = least(expires_at, now() + :overlap_ms::float8 * interval '1 millisecond')
   where key_id in (select key_id from active) and revoked_at is null
), minted as (
  insert into key_secrets (digest, secret_id, key_id, shown)
  select :digest, :secret_id, key_id, :hint from active
)
insert into key_changes (change_id, key_id)
select :change_id, key_id from active;

-- name: RecordUses :run
-- Records a use of each of these secrets, at most once a minute, whichever node it is.
update key_secrets set last_used_at = now()
 where secret_id = any(:secret_ids::text[])
   and (last_used_at is null or last_used_at < now() - interval '1 minute');

-- name: RevokeSecret :run
-- Revokes one secret of a key for good. Changes no row: it is already revoked, or does not exist.
with revoked as (
  update key_secrets set revoked_at = now()
   where key_id = :key_id and secret_id = :secret_id and revoked_at is null
  returning key_id
)
insert into key_changes (change_id, key_id)
select :change_id, key_id from revoked;
