-- timeout_ms=5000

-- name: CreateKey :run
-- Adds a key with its first secret, and announces it for the alerts: no process can have cached
-- this secret.
-- :requests_per_minute?
-- :expires_at?
with created as (
  insert into keys
    (key_id, account_id, "family", name, requests_per_minute, allowed_models,
     account_reader, expires_at, created_by, managed_by, limited_by_owner, limited_by_program,
     allowed_addresses)
  values (:key_id, :account_id, :family, :name, :requests_per_minute, :allowed_models::text[],
    :account_reader, :expires_at, :created_by, :managed_by, :limited_by_owner, :limited_by_program,
    :allowed_addresses::text[])
  returning key_id
), announced as (
  insert into key_changes (change_id, key_id)
  select :change_id, key_id from created
)
insert into key_secrets (digest, secret_id, key_id, shown)
select :digest, :secret_id, key_id, :hint from created;

-- name: ReadKeys :many
-- Keys with their budgets, as `base/budgets.ts` reads them, and the time of this, oldest first.
-- =status 'active' | 'paused' | 'expired' | 'revoked'
with running as materialized (
  -- A budget without a limit does not know what runs.
  select key_id, sum(amount)::bigint as held, count(*)::bigint as requests
    from holds
   where account_id in (
           select k.account_id
             from keys k
             join budgets b
               on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
            where k.key_id = any(:key_ids::text[]) and not b.is_limited)
     and key_id = any(:key_ids::text[])
   group by key_id
)
select k.key_id, k.account_id, k."family", k.name, k.requests_per_minute, k.allowed_models,
       k.account_reader, k.created_by, k.managed_by, k.limited_by_owner,
       case when k.paused then coalesce(k.paused_at, k.created_at) end as "paused_at?",
       k.paused_by_owner, k.expires_at, k.created_at, k.revoked_at, k.allowed_addresses,
       k.revision,
       coalesce((select jsonb_object_agg(t.tag, t.value) from key_tags t where t.key_id = k.key_id),
         '{}') as "tags!",
       case when k.status = 'revoked' then 'revoked'
            when k.expires_at <= now() then 'expired'
            when k.paused then 'paused'
            else 'active' end as "status!",
       b.day_limit, b.week_limit, b.month_limit, b.total_limit, b.running_limit, b.last_used_at,
       array[b.day - date '1970-01-01', b.spent,
         coalesce((select held from running where key_id = k.key_id), b.held),
         coalesce((select requests from running where key_id = k.key_id), b.running),
         b.day_base, b.week_base, b.month_base, b.total_base,
         coalesce(b.day_limit, -1), coalesce(b.week_limit, -1), coalesce(b.month_limit, -1),
         coalesce(b.total_limit, -1), coalesce(b.running_limit, -1)] as "budget!",
       now() as "at!"
  from keys k
  join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
 where k.key_id = any(:key_ids::text[])
 order by k.key_id;

-- name: ReadLabels :many
-- The names of these keys of an account, and the hints of their newest secrets.
select k.key_id as "key_id!", k.name as "name!", coalesce(s.shown, '') as "hint!"
  from keys k
  left join lateral (
    select shown
      from key_secrets
     where key_id = k.key_id
     order by created_at desc, secret_id desc
     limit 1
  ) s on true
 where k.account_id = :account_id and k.key_id = any(:key_ids::text[])
 order by k.key_id;

-- name: ReadStatus :optional
-- The status of a key. No row: no such key.
select status from keys where key_id = :key_id;

-- name: LockAccount :optional
-- The status of an account, locked until the end of the transaction: it is not closed meanwhile,
-- and its keys are counted one by one. No row: no such account.
select status from accounts where account_id = :account_id for no key update;

-- name: CountLive :one
-- How many keys of an account are neither revoked nor expired.
select count(*)::int4 as "keys!"
  from keys
 where account_id = :account_id and status = 'active'
   and (expires_at is null or expires_at > now());

-- name: CountByModel :many
-- How many of these keys may use a model because they name it, by model; and how many name none, by
-- an empty text.
select coalesce(m.model, '') as "model!", count(*)::int4 as "keys!"
  from keys k
  left join lateral unnest(k.allowed_models) as m(model) on true
 where k.account_id = :account_id and k.status = 'active'
   and (k.expires_at is null or k.expires_at > now())
 group by 1;

-- name: CountMade :one
-- How many keys an account has made in the last hour, and when the first of them was, without those
-- of management keys.
select count(*)::int4 as "keys!", min(created_at) as "first_at?"
  from keys
 where account_id = :account_id and created_at > now() - interval '1 hour'
   and created_by not like 'mgmt:%';

-- name: ListManaged :many
-- The keys that somebody manages, without the revoked ones, in the order of their accounts, with
-- the hints of their newest secrets.
select k.key_id, k.account_id, k.name, k.paused,
       coalesce((select s.shown from key_secrets s
                  where s.key_id = k.key_id
                  order by s.created_at desc, s.secret_id desc limit 1), '') as "hint!"
  from keys k
 where k.managed_by = :managed_by and k.status = 'active'
 order by k.account_id, k.key_id;

-- name: PageAccountKeys :many
-- Keys of an account that match the filters, in an order, without the first ones of it.
-- =status 'active' | 'paused' | 'expired' | 'revoked'
-- :statuses?  as of ReadKeys; null: all
-- :text  part of a name or hint, or a key_id; empty: all
-- :tags  keys of tags that they have, with these
-- :values
-- :without_tag  the key of a tag that they do not have; empty: all
-- :attention  unused, expires_soon or near_budget, as of CountAttention; empty: all
-- :key_ids?  null: all
-- :sort  made, spent, name or used
-- :descending  also of keys that the order does not tell apart
-- :after  a key_id, of keys in the order of their making; empty: from the first
-- :skip  how many are left out, in another order
select k.key_id as "key_id!", k.revision as "revision!", k.managed_by as "managed_by!",
       case when k.status = 'revoked' then 'revoked'
            when k.expires_at <= now() then 'expired'
            when k.paused then 'paused'
            else 'active' end as "status!"
  from keys k
  left join lateral (
    select case when b.day >= date_trunc('month', now() at time zone 'utc')::date
             then b.spent - b.month_base end as month_spent,
           b.last_used_at, b.is_near_limit
      from budgets b
     where b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
  ) b on :sort::text in ('spent', 'used') or :attention::text <> ''
 where k.account_id = :account_id
   and (:after::text = ''
        or case when :descending::boolean then k.key_id < :after else k.key_id > :after end)
   and (:statuses::text[] is null
        or case when k.status = 'revoked' then 'revoked'
               when k.expires_at <= now() then 'expired'
               when k.paused then 'paused'
               else 'active' end = any(:statuses))
   and (:text::text = '' or k.key_id = :text or strpos(lower(k.name), lower(:text::text)) > 0
        or exists (select 1 from key_secrets s
                    where s.key_id = k.key_id and strpos(s.shown, :text::text) > 0))
   and (cardinality(:tags::text[]) = 0
        or k.key_id in (
          select t.key_id
            from unnest(:tags::text[], :values::text[]) as wanted (tag, value)
            join key_tags t
              on t.account_id = :account_id and t.tag = wanted.tag and t.value = wanted.value
           group by t.key_id
          having count(*) = cardinality(:tags)))
   and (:without_tag::text = ''
        or not exists (select 1 from key_tags t
                        where t.key_id = k.key_id and t.tag = :without_tag))
   and (:key_ids::text[] is null or k.key_id = any(:key_ids))
   and (:attention = ''
        or k.status = 'active' and (k.expires_at is null or k.expires_at > now())
           and case :attention
                 when 'unused' then k.created_at < now() - interval '90 days'
                   and coalesce(b.last_used_at < now() - interval '90 days', true)
                 when 'expires_soon' then k.expires_at < now() + interval '7 days'
                 else b.is_near_limit end)
 order by
   case when :sort = 'spent' and :descending then coalesce(b.month_spent, 0) end desc,
   case when :sort = 'spent' and not :descending then coalesce(b.month_spent, 0) end,
   case when :sort = 'used' and :descending then coalesce(b.last_used_at, '-infinity') end desc,
   case when :sort = 'used' and not :descending then coalesce(b.last_used_at, '-infinity') end,
   case when :sort = 'name' and :descending then lower(k.name) end desc,
   case when :sort = 'name' and not :descending then lower(k.name) end,
   case when :descending then k.key_id end desc,
   k.key_id
 limit :rows offset :skip::int;

-- name: CountAttention :one
-- How many keys of an account deserve a look: were made more than 90 days ago and charged nothing
-- in the last 90 days, expire within 7 days, or have spent most of a limit. Neither revoked nor
-- expired ones.
select count(*) filter (where k.created_at < now() - interval '90 days'
           and coalesce(b.last_used_at < now() - interval '90 days', true))::int4 as "unused!",
       count(*) filter (where k.expires_at < now() + interval '7 days')::int4 as "expires_soon!",
       count(*) filter (where b.is_near_limit)::int4 as "near_budget!"
  from keys k
  join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
 where k.account_id = :account_id and k.status = 'active'
   and (k.expires_at is null or k.expires_at > now());

-- name: LockKey :optional
-- The limits of an active key, locked until the end of the transaction, and whether it is paused
-- and has expired. No row: the key is revoked or does not exist.
select k.requests_per_minute, k.allowed_models, k.account_reader, k.expires_at,
       coalesce(k.expires_at <= now(), false) as "is_expired!",
       k.allowed_addresses, k.paused, k.paused_by_owner, k.paused_by_program,
       k.limited_by_owner, k.limited_by_program,
       coalesce((select jsonb_object_agg(t.tag, t.value) from key_tags t where t.key_id = k.key_id),
         '{}') as "tags!",
       b.day_limit, b.week_limit, b.month_limit, b.total_limit, b.running_limit
  from keys k
  join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
 where k.key_id = :key_id and k.status = 'active'
   for no key update of k;

-- name: FindManagers :many
-- All who manage these keys of an account. Without those of keys of another one.
select distinct managed_by
  from keys
 where account_id = :account_id and key_id = any(:key_ids);

-- name: LockKeys :many
-- The same of several keys of an account, in the order of their ids, the revoked ones included.
select k.key_id, k."family", k.status, k.revision, k.managed_by,
       k.requests_per_minute, k.allowed_models, k.account_reader, k.expires_at,
       coalesce(k.expires_at <= now(), false) as "is_expired!",
       k.allowed_addresses, k.paused, k.paused_by_owner, k.paused_by_program,
       k.limited_by_owner, k.limited_by_program,
       coalesce((select jsonb_object_agg(t.tag, t.value) from key_tags t where t.key_id = k.key_id),
         '{}') as "tags!",
       b.day_limit, b.week_limit, b.month_limit, b.total_limit, b.running_limit
  from keys k
  join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
 where k.account_id = :account_id and k.key_id = any(:key_ids::text[])
 order by k.key_id
   for no key update of k;

-- name: UpdateKeys :run
-- Changes the members of keys whose flag is true. The keys are locked.
-- :name?
-- :requests_per_minute?
-- :allowed_models?
-- :account_reader?
-- :expires_at?
-- :allowed_addresses?
-- :limited_by_owner?  null: it stays as it is
-- :limited_by_program?  as it
-- :change_id  to which each key adds its own
with changed as (
  update keys
     set name = case when :has_name::boolean then :name::text else name end,
         requests_per_minute = case when :has_requests_per_minute::boolean
           then :requests_per_minute::integer else requests_per_minute end,
         allowed_models = case when :has_allowed_models::boolean
           then :allowed_models::text[] else allowed_models end,
         account_reader = case when :has_account_reader::boolean
           then :account_reader::boolean else account_reader end,
         expires_at = case when :has_expires_at::boolean
           then :expires_at::timestamptz else expires_at end,
         allowed_addresses = case when :has_allowed_addresses::boolean
           then :allowed_addresses::text[] else allowed_addresses end,
         limited_by_owner = coalesce(:limited_by_owner::boolean, limited_by_owner),
         limited_by_program = coalesce(:limited_by_program::boolean, limited_by_program)
   where key_id = any(:key_ids::text[])
  returning key_id
)
insert into key_changes (change_id, key_id)
select :change_id || '_' || key_id, key_id from changed;

-- name: PauseKeys :run
-- Pauses keys, or resumes them. They are locked.
-- :paused_by_owner  as the columns of a key
-- :change_id  to which each key adds its own
with changed as (
  update keys
     set paused = :paused::boolean, paused_by_owner = :paused_by_owner::boolean,
         paused_by_program = :paused_by_program::boolean,
         paused_at = case when :paused and not paused then now() else paused_at end
   where key_id = any(:key_ids::text[])
  returning key_id
)
insert into key_changes (change_id, key_id)
select :change_id || '_' || key_id, key_id from changed;

-- name: HandOverKeys :run
-- Lets another person manage the keys of an account that somebody manages, revoked ones included.
-- Locks them in the order of their ids, as all statements that lock several.
-- :next  who manages them from now on; empty: nobody
-- :change_id  to which each key adds its own
with ordered as materialized (
  select key_id
    from keys
   where account_id = :account_id and managed_by = :managed_by
   order by key_id
     for no key update
), changed as (
  update keys set managed_by = :next
    from ordered
   where keys.key_id = ordered.key_id
  returning keys.key_id
)
insert into key_changes (change_id, key_id)
select :change_id || '_' || key_id, key_id from changed;

-- name: RevokeKeys :run
-- Revokes those of the keys for good that are active. Locks them, unless they are.
-- :change_id  to which each key adds its own
with revoked as (
  update keys set status = 'revoked', revoked_at = now()
   where key_id = any(:key_ids::text[]) and status = 'active'
  returning key_id
)
insert into key_changes (change_id, key_id)
select :change_id || '_' || key_id, key_id from revoked;

-- name: PauseManaged :many
-- Pauses the keys of an account that somebody manages, as an owner does: also those that a member
-- or a program has paused and would resume. Returns those that it paused.
-- :change_id  to which each key adds its own
with ordered as materialized (
  select key_id
    from keys
   where account_id = :account_id and managed_by = :managed_by and status = 'active'
     and (not paused or paused_by_program or not paused_by_owner)
   order by key_id
     for no key update
), changed as (
  update keys
     set paused = true, paused_by_owner = true, paused_by_program = false,
         paused_at = case when paused then paused_at else now() end
    from ordered
   where keys.key_id = ordered.key_id
  returning keys.key_id
)
insert into key_changes (change_id, key_id)
select :change_id || '_' || key_id, key_id from changed
returning key_id;

-- name: RevokeManaged :many
-- Revokes, for good, the keys of an account that somebody manages. Returns those that it revoked.
-- :change_id  to which each key adds its own
with ordered as materialized (
  select key_id
    from keys
   where account_id = :account_id and managed_by = :managed_by and status = 'active'
   order by key_id
     for no key update
), revoked as (
  update keys set status = 'revoked', revoked_at = now()
    from ordered
   where keys.key_id = ordered.key_id
  returning keys.key_id
)
insert into key_changes (change_id, key_id)
select :change_id || '_' || key_id, key_id from revoked
returning key_id;

-- name: RevokeAccountKeys :many
-- Revokes all active keys of an account for good, and its management keys. Returns them. Locks the
-- management keys first, as calls of programs do, and each kind in the order of its ids.
-- :change_id  to which each key adds its own
with managers as materialized (
  select management_key_id
    from management_keys
   where account_id = :account_id and revoked_at is null
   order by management_key_id
     for update
), active as materialized (
  select key_id
    from keys
   where account_id = :account_id and status = 'active'
     and (select count(*) from managers) >= 0
   order by key_id
     for update
), revoked_keys as (
  update keys set status = 'revoked', revoked_at = now()
    from active
   where keys.key_id = active.key_id
  returning keys.key_id
), revoked_managers as (
  update management_keys set revoked_at = now()
    from managers
   where management_keys.management_key_id = managers.management_key_id
  returning management_keys.management_key_id
), revoked as (
  select key_id from revoked_keys
  union all
  select management_key_id from revoked_managers
)
insert into key_changes (change_id, key_id)
select :change_id || '_' || key_id, key_id from revoked
returning key_id;
