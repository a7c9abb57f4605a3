-- timeout_ms=5000

-- name: InsertManagementKey :run
-- Adds a management key with its first secret. The account is locked.
-- :expires_at?
with made as (
  insert into management_keys
    (management_key_id, account_id, name, scopes, most_keys, child_limits, allowed_addresses,
     created_by, expires_at)
  values (:management_key_id, :account_id, :name, :scopes::text[], :most_keys, :child_limits::jsonb,
    :allowed_addresses::text[], :created_by, :expires_at)
  returning management_key_id
)
insert into management_secrets (digest, management_key_id, shown, made_by)
select :digest, management_key_id, :hint, :created_by from made;

-- name: FindManagementSecrets :many
-- The secrets of management keys with these digests, and records their use, at most once a minute.
with touched as (
  update management_secrets set used_at = now()
   where digest in (select digest from management_secrets
                     where digest = any(:digests::bytea[])
                       and (used_at is null or used_at < now() - interval '50 seconds')
                       for update skip locked)
)
select s.digest, s.shown as hint, k.management_key_id, k.account_id, k.name, k.scopes,
       k.allowed_addresses, k.revoked_at is not null as "is_revoked!",
       a.status as account_status,
       -- Of the key and the secret, whichever expires first. Null: neither does.
       (extract(epoch from least(s.expires_at, k.expires_at) - clock_timestamp()) * 1000)::float8
         as "expires_in_ms?",
       coalesce(k.expires_at <= s.expires_at, k.expires_at is not null) as "key_expires_first!"
  from management_secrets s
  join management_keys k on k.management_key_id = s.management_key_id
  join accounts a on a.account_id = k.account_id
 where s.digest = any(:digests::bytea[]);

-- name: FindManagementKey :optional
-- One management key. No row: there is none.
select k.management_key_id, k.account_id, k.name, k.scopes, k.most_keys, k.child_limits,
       k.allowed_addresses, k.created_by, k.created_at, k.expires_at, k.revoked_at,
       (select count(*) from keys c
         where c.managed_by = 'mgmt:' || k.management_key_id and c.status = 'active'
           and (c.expires_at is null or c.expires_at > now()))::int4 as "live_keys!"
  from management_keys k
 where k.management_key_id = :management_key_id;

-- name: ListManagementKeys :many
-- The management keys of an account, oldest first.
-- :after  a management_key_id; empty: from the first
select k.management_key_id, k.account_id, k.name, k.scopes, k.most_keys, k.child_limits,
       k.allowed_addresses, k.created_by, k.created_at, k.expires_at, k.revoked_at,
       (select count(*) from keys c
         where c.managed_by = 'mgmt:' || k.management_key_id and c.status = 'active'
           and (c.expires_at is null or c.expires_at > now()))::int4 as "live_keys!"
  from management_keys k
 where k.account_id = :account_id and k.management_key_id > :after
 order by k.management_key_id
 limit :rows;

-- name: FindManagementKeyOf :optional
-- A management key of an account that is not revoked. No row: there is none.
select management_key_id
  from management_keys
 where management_key_id = :management_key_id and account_id = :account_id
   and revoked_at is null;

-- name: ListManagementSecrets :many
-- The secrets of these management keys, newest first: the valid ones, and the newest five.
select management_key_id, hint, created_at, expires_at, last_used_at
  from (select management_key_id, shown as hint, created_at, expires_at, used_at as last_used_at,
               row_number() over (
                 partition by management_key_id order by created_at desc, digest
               ) as rank
          from management_secrets
         where management_key_id = any(:management_key_ids::text[])) ranked
 where rank <= 5 or expires_at is null or expires_at > now()
 order by management_key_id, rank;

-- name: CountManagementKeys :one
-- How many management keys of an account are not revoked.
select count(*)::int4 as "keys!"
  from management_keys
 where account_id = :account_id and revoked_at is null;

-- name: CountManaged :one
-- How many keys that somebody manages are neither revoked nor expired.
select count(*)::int4 as "keys!"
  from keys
 where managed_by = :managed_by and status = 'active'
   and (expires_at is null or expires_at > now());

-- name: ShareManagementKeys :many
-- Management keys, which stay as they are until the end of the transaction, in the order of their
-- ids, and whether each may be used: it is not revoked, and has not expired.
select management_key_id, scopes, most_keys, child_limits,
       revoked_at is null and (expires_at is null or expires_at > now()) as "is_usable!"
  from management_keys
 where management_key_id = any(:management_key_ids::text[])
 order by management_key_id
   for share;

-- name: LockManagementKey :optional
-- What can be changed of a management key that is not revoked, locked until the end of the
-- transaction. No row: it is revoked, or there is none.
select name, scopes, most_keys, child_limits, allowed_addresses, expires_at
  from management_keys
 where management_key_id = :management_key_id and revoked_at is null
   for update;

-- name: UpdateManagementKey :run
-- Changes a management key, which is locked.
-- :expires_at?
with changed as (
  update management_keys
     set name = :name, scopes = :scopes::text[], most_keys = :most_keys,
         child_limits = :child_limits::jsonb, allowed_addresses = :allowed_addresses::text[],
         expires_at = :expires_at
   where management_key_id = :management_key_id
  returning management_key_id
)
insert into key_changes (change_id, key_id)
select :change_id, management_key_id from changed;

-- name: RotateManagementKey :run
-- Adds a secret to a management key, which is locked. The earlier ones expire after the overlap, or
-- at an earlier expiry that they already have.
with ended as (
  update management_secrets
     set expires_at = least(expires_at, now() + :overlap_ms::float8 * interval '1 millisecond')
   where management_key_id = :management_key_id
), minted as (
  insert into management_secrets (digest, management_key_id, shown, made_by)
  values (:digest, :management_key_id, :hint, :made_by)
)
insert into key_changes (change_id, key_id) values (:change_id, :management_key_id);

-- name: ListMadeSecrets :many
-- The management keys that somebody could still use, with the newest secret that he has seen, in
-- the order of their accounts.
select distinct on (k.account_id, k.management_key_id)
       k.management_key_id as key_id, k.account_id, k.name, s.shown as hint
  from management_secrets s
  join management_keys k on k.management_key_id = s.management_key_id
 where s.made_by = :made_by and k.revoked_at is null
   and (s.expires_at is null or s.expires_at > now())
 order by k.account_id, k.management_key_id, s.created_at desc;

-- name: EndMadeSecrets :many
-- Ends the secrets of management keys of an account that somebody has seen, also of those that have
-- expired and may be used again. Returns these management keys.
-- :change_id  to which each adds its own
with locked as (
  select management_key_id
    from management_keys
   where account_id = :account_id and revoked_at is null
   order by management_key_id
     for update
), ended as (
  update management_secrets s set expires_at = now()
    from locked
   where s.management_key_id = locked.management_key_id and s.made_by = :made_by
     and (s.expires_at is null or s.expires_at > now())
  returning s.management_key_id
)
insert into key_changes (change_id, key_id)
select distinct :change_id || '_' || management_key_id, management_key_id from ended
returning key_id;

-- name: RevokeManagementKey :run
-- Revokes a management key for good. Changes no row: it is revoked already.
with revoked as (
  update management_keys set revoked_at = now()
   where management_key_id = :management_key_id and revoked_at is null
  returning management_key_id
)
insert into key_changes (change_id, key_id)
select :change_id, management_key_id from revoked;

-- name: CountChange :optional
-- Counts a changing call of a management key. No row: it has made as many as it may since a moment
-- that is less than a minute ago.
update management_keys
   set calls = case when calls_from <= now() - interval '1 minute' then 1 else calls + 1 end,
       calls_from = case when calls_from <= now() - interval '1 minute' then now()
                         else calls_from end
 where management_key_id = :management_key_id
   and (calls < :most::int4 or calls_from <= now() - interval '1 minute')
returning calls;

-- name: ReadChangesFrom :optional
-- Since when the changing calls of a management key are counted.
select calls_from from management_keys where management_key_id = :management_key_id;
