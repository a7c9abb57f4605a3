// Made of src/keys/sql by `npm run generate`. Do not edit.

import { type Json, type Many, many, type One, one, type Optional, optional, type Run, run } from "../../src/postgres/statement.ts";

// changes.sql

export type AnnounceAccountRow = { keyId: string };
/**
 * Tells every process that the keys of an account changed, because the account did. Returns them,
 * and its management keys.
 * `changeId`: to which each key adds its own
 */
export const announceAccount: Many<{ changeId: string; accountId: string }, AnnounceAccountRow> = many(
  "keys/announce-account",
  `-- keys/announce-account
insert into key_changes (change_id, key_id)
select $1 || '_' || k.key_id, k.key_id
  from (select key_id
          from keys
         where account_id = $2 and status = 'active'
        union all
        select management_key_id
          from management_keys
         where account_id = $2 and revoked_at is null) as k
returning key_id`,
  (p) => [p.changeId, p.accountId],
  (v) => ({ keyId: v[0] }) as never,
  "",
  5000,
);

/**
 * Tells every process that something beside keys changed that their requests depend on.
 */
export const announceChange: Run<{ changeId: string; changedId: string }> = run(
  "keys/announce-change",
  `-- keys/announce-change
insert into key_changes (change_id, key_id) values ($1, $2)`,
  (p) => [p.changeId, p.changedId],
  5000,
);

/**
 * Tells every process that the keys of an account changed that somebody manages, because he did.
 * `changeId`: to which each key adds its own
 */
export const announceManaged: Run<{ changeId: string; accountId: string; managedBy: string }> = run(
  "keys/announce-managed",
  `-- keys/announce-managed
insert into key_changes (change_id, key_id)
select $1 || '_' || key_id, key_id
  from keys
 where account_id = $2 and managed_by = $3 and status = 'active'`,
  (p) => [p.changeId, p.accountId, p.managedBy],
  5000,
);

export type ReadChangesRow = { readAt: Date; changeId: string | null; keyId: string | null };
/**
 * Changes of keys since ten seconds before a time, and the time of this read. One row without a
 * change if there is none. The ten seconds: transactions do not commit in the order of their times.
 * `since`: time of the previous read; null: now
 */
export const readChanges: Many<{ since: Date | string | null }, ReadChangesRow> = many(
  "keys/read-changes",
  `-- keys/read-changes
select statement_timestamp() as read_at, c.change_id as change_id, c.key_id as key_id
  from (select 1) as always
  left join key_changes c
    on c.changed_at
       > coalesce($1::timestamptz, statement_timestamp()) - interval '10 seconds'`,
  (p) => [p.since],
  (v) => ({ readAt: v[0], changeId: v[1], keyId: v[2] }) as never,
  "changeId keyId",
  5000,
);

export type ListEventsRow = { keyId: string; accountId: string; name: string; createdAt: Date; createdBy: string; expiresAt: Date | null; totalLimit: bigint | null; manager: string | null; pausedAt: Date | null; revokedAt: Date | null; hint: string };
/**
 * The keys that the feed names since ten seconds before a time, and that were created, paused or
 * revoked since then, with the hint of their first secret. An account that is closed has no news.
 */
export const listEvents: Many<{ since: Date | string; rows: bigint | number }, ListEventsRow> = many(
  "keys/list-events",
  `-- keys/list-events
select k.key_id, k.account_id, k.name, k.created_at, k.created_by, k.expires_at,
       (select b.total_limit from budgets b
         where b.account_id = k.account_id and b."family" = k."family"
           and b.payer = k.key_id) as total_limit,
       -- Of the management key that created it.
       (select m.name from management_keys m
         where k.created_by = 'mgmt:' || m.management_key_id) as manager,
       case when k.paused then k.paused_at end as paused_at, k.revoked_at,
       (select s.shown from key_secrets s
         where s.key_id = k.key_id order by s.secret_id limit 1) as hint
  from keys k
  join accounts a on a.account_id = k.account_id and a.status <> 'closed'
 where k.key_id in (select c.key_id from key_changes c
                     where c.changed_at > $1::timestamptz - interval '10 seconds')
   and (k.created_at > $1::timestamptz - interval '10 seconds'
        or k.paused_at > $1::timestamptz - interval '10 seconds'
        or k.revoked_at > $1::timestamptz - interval '10 seconds')
 order by k.key_id
 limit $2`,
  (p) => [p.since, p.rows],
  (v) => ({ keyId: v[0], accountId: v[1], name: v[2], createdAt: v[3], createdBy: v[4], expiresAt: v[5], totalLimit: v[6], manager: v[7], pausedAt: v[8], revokedAt: v[9], hint: v[10] }) as never,
  "expiresAt totalLimit manager pausedAt revokedAt",
  5000,
);

/**
 * Deletes changes that every running process read long ago.
 */
export const removeChanges: Run<undefined> = run(
  "keys/remove-changes",
  `-- keys/remove-changes
delete from key_changes where changed_at < now() - interval '1 day'`,
  () => [],
  5000,
);

// key-tags.sql

/**
 * Gives tags to keys of an account, and takes others away. The keys are locked.
 * `tags`: keys of tags that they get, with these
 * `removed`: keys of other tags
 */
export const changeTags: Run<{ keyIds: readonly string[]; removed: readonly string[]; tags: readonly string[]; values: readonly string[]; accountId: string }> = run(
  "keys/change-tags",
  `-- keys/change-tags
with removed as (
  delete from key_tags where key_id = any($1::text[]) and tag = any($2::text[])
)
insert into key_tags (key_id, account_id, tag, value)
select k.key_id, k.account_id, given.tag, given.value
  from keys k
 cross join unnest($3::text[], $4::text[]) as given (tag, value)
 where k.account_id = $5 and k.key_id = any($1)
on conflict (key_id, tag) do update set value = excluded.value`,
  (p) => [p.keyIds, p.removed, p.tags, p.values, p.accountId],
  5000,
);

export type ListTagKeysRow = { tag: string };
/**
 * The keys of tags that keys of an account have, in their order. Reads one entry of the index for
 * each, however many keys have it.
 */
export const listTagKeys: Many<{ accountId: string; rows: bigint | number }, ListTagKeysRow> = many(
  "keys/list-tag-keys",
  `-- keys/list-tag-keys
with recursive found as (
  (select tag from key_tags where account_id = $1 order by tag limit 1)
  union all
  select (select t.tag from key_tags t
           where t.account_id = $1 and t.tag > found.tag order by t.tag limit 1)
    from found
   where found.tag is not null
)
select tag as tag from found where tag is not null limit $2`,
  (p) => [p.accountId, p.rows],
  (v) => ({ tag: v[0] }) as never,
  "",
  5000,
);

export type ListGroupsRow = { value: string; keys: number; monthSpent: bigint };
/**
 * The keys of an account that match the filters of PageAccountKeys, by the value of a tag, in the
 * order of the values; those without it first, with an empty value.
 * `prefix`: what values begin with; empty: all
 * `after`: the value of the last group of the page before; null: from the first
 */
export const listGroups: Many<{ accountId: string; statuses: readonly string[] | null; text: string; tags: readonly string[]; values: readonly string[]; withoutTag: string; keyIds: readonly string[] | null; attention: string; after: string | null; prefix: string; tag: string; rows: bigint | number }, ListGroupsRow> = many(
  "keys/list-groups",
  `-- keys/list-groups
with matching as not materialized (
  select k.key_id,
         case when b.day >= date_trunc('month', now() at time zone 'utc')::date
           then b.spent - b.month_base else 0 end as month_spent
    from keys k
    join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
   where k.account_id = $1
     and ($2::text[] is null
          or case when k.status = 'revoked' then 'revoked'
                 when k.expires_at <= now() then 'expired'
                 when k.paused then 'paused'
                 else 'active' end = any($2))
     and ($3::text = '' or k.key_id = $3 or strpos(lower(k.name), lower($3::text)) > 0
          or exists (select 1 from key_secrets s
                      where s.key_id = k.key_id and strpos(s.shown, $3::text) > 0))
     and (cardinality($4::text[]) = 0
          or k.key_id in (
            select t.key_id
              from unnest($4::text[], $5::text[]) as wanted (tag, value)
              join key_tags t
                on t.account_id = $1 and t.tag = wanted.tag and t.value = wanted.value
             group by t.key_id
            having count(*) = cardinality($4)))
     and ($6::text = ''
          or not exists (select 1 from key_tags t
                          where t.key_id = k.key_id and t.tag = $6))
     and ($7::text[] is null or k.key_id = any($7))
     and ($8::text = ''
          or k.status = 'active' and (k.expires_at is null or k.expires_at > now())
             and case $8
                   when 'unused' then k.created_at < now() - interval '90 days'
                     and coalesce(b.last_used_at < now() - interval '90 days', true)
                   when 'expires_soon' then k.expires_at < now() + interval '7 days'
                   else b.is_near_limit end)
), groups as (
  (
    select '' as value, count(*)::int4 as keys, sum(m.month_spent)::bigint as month_spent
      from matching m
     where $9::text is null and $10::text = ''
       and not exists (select 1 from key_tags t where t.key_id = m.key_id and t.tag = $11)
    having count(*) > 0
  )
  union all
  (
    select t.value, count(*)::int4, sum(m.month_spent)::bigint
      from key_tags t
      join matching m using (key_id)
     where t.account_id = $1 and t.tag = $11 and t.value > coalesce($9, '')
       -- No value has the last character of Unicode.
       and t.value >= $10 and t.value < $10 || chr(1114111)
     group by t.value
     order by t.value
     limit $12
  )
)
select value as value, keys as keys, month_spent as month_spent
  from groups
 order by value
 limit $12`,
  (p) => [p.accountId, p.statuses, p.text, p.tags, p.values, p.withoutTag, p.keyIds, p.attention, p.after, p.prefix, p.tag, p.rows],
  (v) => ({ value: v[0], keys: v[1], monthSpent: v[2] }) as never,
  "",
  5000,
);

// keys.sql

/**
 * Adds a key with its first secret, and announces it for the alerts: no process can have cached
 * this secret.
 */
export const createKey: Run<{ keyId: string; accountId: string; family: "v1" | "v2"; name: string; requestsPerMinute: number | null; allowedModels: readonly string[]; accountReader: boolean; expiresAt: Date | string | null; createdBy: string; managedBy: string; limitedByOwner: boolean; limitedByProgram: boolean; allowedAddresses: readonly string[]; changeId: string; digest: Buffer; secretId: string; hint: string }> = run(
  "keys/create-key",
  `-- keys/create-key
with created as (
  insert into keys
    (key_id, account_id, "family", name, requests_per_minute, allowed_models,
     account_reader, expires_at, created_by, managed_by, limited_by_owner, limited_by_program,
     allowed_addresses)
  values ($1, $2, $3, $4, $5, $6::text[],
    $7, $8, $9, $10, $11, $12,
    $13::text[])
  returning key_id
), announced as (
  insert into key_changes (change_id, key_id)
  select $14, key_id from created
)
insert into key_secrets (digest, secret_id, key_id, shown)
select $15, $16, key_id, $17 from created`,
  (p) => [p.keyId, p.accountId, p.family, p.name, p.requestsPerMinute, p.allowedModels, p.accountReader, p.expiresAt, p.createdBy, p.managedBy, p.limitedByOwner, p.limitedByProgram, p.allowedAddresses, p.changeId, p.digest, p.secretId, p.hint],
  5000,
);

export type ReadKeysRow = { keyId: string; accountId: string; family: "v1" | "v2"; name: string; requestsPerMinute: number | null; allowedModels: string[]; accountReader: boolean; createdBy: string; managedBy: string; limitedByOwner: boolean; pausedAt: Date | null; pausedByOwner: boolean; expiresAt: Date | null; createdAt: Date; revokedAt: Date | null; allowedAddresses: string[]; revision: number; tags: Json; status: "active" | "paused" | "expired" | "revoked"; dayLimit: bigint | null; weekLimit: bigint | null; monthLimit: bigint | null; totalLimit: bigint | null; runningLimit: number | null; lastUsedAt: Date | null; budget: bigint[]; at: Date };
/**
 * Keys with their budgets, as `base/budgets.ts` reads them, and the time of this, oldest first.
 */
export const readKeys: Many<{ keyIds: readonly string[] }, ReadKeysRow> = many(
  "keys/read-keys",
  `-- keys/read-keys
with running as materialized (
  -- A budget without a limit does not know what runs.
  select key_id, sum(amount)::bigint as held, count(*)::bigint as requests
    from holds
   where account_id in (
           select k.account_id
             from keys k
             join budgets b
               on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
            where k.key_id = any($1::text[]) and not b.is_limited)
     and key_id = any($1::text[])
   group by key_id
)
select k.key_id, k.account_id, k."family", k.name, k.requests_per_minute, k.allowed_models,
       k.account_reader, k.created_by, k.managed_by, k.limited_by_owner,
       case when k.paused then coalesce(k.paused_at, k.created_at) end as paused_at,
       k.paused_by_owner, k.expires_at, k.created_at, k.revoked_at, k.allowed_addresses,
       k.revision,
       coalesce((select jsonb_object_agg(t.tag, t.value) from key_tags t where t.key_id = k.key_id),
         '{}') as tags,
       case when k.status = 'revoked' then 'revoked'
            when k.expires_at <= now() then 'expired'
            when k.paused then 'paused'
            else 'active' end as status,
       b.day_limit, b.week_limit, b.month_limit, b.total_limit, b.running_limit, b.last_used_at,
       array[b.day - date '1970-01-01', b.spent,
         coalesce((select held from running where key_id = k.key_id), b.held),
         coalesce((select requests from running where key_id = k.key_id), b.running),
         b.day_base, b.week_base, b.month_base, b.total_base,
         coalesce(b.day_limit, -1), coalesce(b.week_limit, -1), coalesce(b.month_limit, -1),
         coalesce(b.total_limit, -1), coalesce(b.running_limit, -1)] as budget,
       now() as at
  from keys k
  join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
 where k.key_id = any($1::text[])
 order by k.key_id`,
  (p) => [p.keyIds],
  (v) => ({ keyId: v[0], accountId: v[1], family: v[2], name: v[3], requestsPerMinute: v[4], allowedModels: v[5], accountReader: v[6], createdBy: v[7], managedBy: v[8], limitedByOwner: v[9], pausedAt: v[10], pausedByOwner: v[11], expiresAt: v[12], createdAt: v[13], revokedAt: v[14], allowedAddresses: v[15], revision: v[16], tags: v[17], status: v[18], dayLimit: v[19], weekLimit: v[20], monthLimit: v[21], totalLimit: v[22], runningLimit: v[23], lastUsedAt: v[24], budget: v[25], at: v[26] }) as never,
  "requestsPerMinute pausedAt expiresAt revokedAt dayLimit weekLimit monthLimit totalLimit runningLimit lastUsedAt",
  5000,
);

export type ReadLabelsRow = { keyId: string; name: string; hint: string };
/**
 * The names of these keys of an account, and the hints of their newest secrets.
 */
export const readLabels: Many<{ accountId: string; keyIds: readonly string[] }, ReadLabelsRow> = many(
  "keys/read-labels",
  `-- keys/read-labels
select k.key_id as key_id, k.name as name, coalesce(s.shown, '') as hint
  from keys k
  left join lateral (
    select shown
      from key_secrets
     where key_id = k.key_id
     order by created_at desc, secret_id desc
     limit 1
  ) s on true
 where k.account_id = $1 and k.key_id = any($2::text[])
 order by k.key_id`,
  (p) => [p.accountId, p.keyIds],
  (v) => ({ keyId: v[0], name: v[1], hint: v[2] }) as never,
  "",
  5000,
);

export type ReadStatusRow = { status: "active" | "revoked" };
/**
 * The status of a key. No row: no such key.
 */
export const readStatus: Optional<{ keyId: string }, ReadStatusRow> = optional(
  "keys/read-status",
  `-- keys/read-status
select status from keys where key_id = $1`,
  (p) => [p.keyId],
  (v) => ({ status: v[0] }) as never,
  "",
  5000,
);

export type LockAccountRow = { status: "active" | "suspended" | "closed" };
/**
 * The status of an account, locked until the end of the transaction: it is not closed meanwhile,
 * and its keys are counted one by one. No row: no such account.
 */
export const lockAccount: Optional<{ accountId: string }, LockAccountRow> = optional(
  "keys/lock-account",
  `-- keys/lock-account
select status from accounts where account_id = $1 for no key update`,
  (p) => [p.accountId],
  (v) => ({ status: v[0] }) as never,
  "",
  5000,
);

export type CountLiveRow = { keys: number };
/**
 * How many keys of an account are neither revoked nor expired.
 */
export const countLive: One<{ accountId: string }, CountLiveRow> = one(
  "keys/count-live",
  `-- keys/count-live
select count(*)::int4 as keys
  from keys
 where account_id = $1 and status = 'active'
   and (expires_at is null or expires_at > now())`,
  (p) => [p.accountId],
  (v) => ({ keys: v[0] }) as never,
  "",
  5000,
);

export type CountByModelRow = { model: string; keys: number };
/**
 * How many of these keys may use a model because they name it, by model; and how many name none, by
 * an empty text.
 */
export const countByModel: Many<{ accountId: string }, CountByModelRow> = many(
  "keys/count-by-model",
  `-- keys/count-by-model
select coalesce(m.model, '') as model, count(*)::int4 as keys
  from keys k
  left join lateral unnest(k.allowed_models) as m(model) on true
 where k.account_id = $1 and k.status = 'active'
   and (k.expires_at is null or k.expires_at > now())
 group by 1`,
  (p) => [p.accountId],
  (v) => ({ model: v[0], keys: v[1] }) as never,
  "",
  5000,
);

export type CountMadeRow = { keys: number; firstAt: Date | null };
/**
 * How many keys an account has made in the last hour, and when the first of them was, without those
 * of management keys.
 */
export const countMade: One<{ accountId: string }, CountMadeRow> = one(
  "keys/count-made",
  `-- keys/count-made
select count(*)::int4 as keys, min(created_at) as first_at
  from keys
 where account_id = $1 and created_at > now() - interval '1 hour'
   and created_by not like 'mgmt:%'`,
  (p) => [p.accountId],
  (v) => ({ keys: v[0], firstAt: v[1] }) as never,
  "firstAt",
  5000,
);

export type ListManagedRow = { keyId: string; accountId: string; name: string; paused: boolean; hint: string };
/**
 * The keys that somebody manages, without the revoked ones, in the order of their accounts, with
 * the hints of their newest secrets.
 */
export const listManaged: Many<{ managedBy: string }, ListManagedRow> = many(
  "keys/list-managed",
  `-- keys/list-managed
select k.key_id, k.account_id, k.name, k.paused,
       coalesce((select s.shown from key_secrets s
                  where s.key_id = k.key_id
                  order by s.created_at desc, s.secret_id desc limit 1), '') as hint
  from keys k
 where k.managed_by = $1 and k.status = 'active'
 order by k.account_id, k.key_id`,
  (p) => [p.managedBy],
  (v) => ({ keyId: v[0], accountId: v[1], name: v[2], paused: v[3], hint: v[4] }) as never,
  "",
  5000,
);

export type PageAccountKeysRow = { keyId: string; revision: number; managedBy: string; status: "active" | "paused" | "expired" | "revoked" };
/**
 * Keys of an account that match the filters, in an order, without the first ones of it.
 * `statuses`: as of ReadKeys; null: all
 * `text`: part of a name or hint, or a key_id; empty: all
 * `tags`: keys of tags that they have, with these
 * `withoutTag`: the key of a tag that they do not have; empty: all
 * `attention`: unused, expires_soon or near_budget, as of CountAttention; empty: all
 * `keyIds`: null: all
 * `sort`: made, spent, name or used
 * `descending`: also of keys that the order does not tell apart
 * `after`: a key_id, of keys in the order of their making; empty: from the first
 * `skip`: how many are left out, in another order
 */
export const pageAccountKeys: Many<{ sort: string; attention: string; accountId: string; after: string; descending: boolean; statuses: readonly string[] | null; text: string; tags: readonly string[]; values: readonly string[]; withoutTag: string; keyIds: readonly string[] | null; rows: bigint | number; skip: number }, PageAccountKeysRow> = many(
  "keys/page-account-keys",
  `-- keys/page-account-keys
select k.key_id as key_id, k.revision as revision, k.managed_by as managed_by,
       case when k.status = 'revoked' then 'revoked'
            when k.expires_at <= now() then 'expired'
            when k.paused then 'paused'
            else 'active' end as status
  from keys k
  left join lateral (
    select case when b.day >= date_trunc('month', now() at time zone 'utc')::date
             then b.spent - b.month_base end as month_spent,
           b.last_used_at, b.is_near_limit
      from budgets b
     where b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
  ) b on $1::text in ('spent', 'used') or $2::text <> ''
 where k.account_id = $3
   and ($4::text = ''
        or case when $5::boolean then k.key_id < $4 else k.key_id > $4 end)
   and ($6::text[] is null
        or case when k.status = 'revoked' then 'revoked'
               when k.expires_at <= now() then 'expired'
               when k.paused then 'paused'
               else 'active' end = any($6))
   and ($7::text = '' or k.key_id = $7 or strpos(lower(k.name), lower($7::text)) > 0
        or exists (select 1 from key_secrets s
                    where s.key_id = k.key_id and strpos(s.shown, $7::text) > 0))
   and (cardinality($8::text[]) = 0
        or k.key_id in (
          select t.key_id
            from unnest($8::text[], $9::text[]) as wanted (tag, value)
            join key_tags t
              on t.account_id = $3 and t.tag = wanted.tag and t.value = wanted.value
           group by t.key_id
          having count(*) = cardinality($8)))
   and ($10::text = ''
        or not exists (select 1 from key_tags t
                        where t.key_id = k.key_id and t.tag = $10))
   and ($11::text[] is null or k.key_id = any($11))
   and ($2 = ''
        or k.status = 'active' and (k.expires_at is null or k.expires_at > now())
           and case $2
                 when 'unused' then k.created_at < now() - interval '90 days'
                   and coalesce(b.last_used_at < now() - interval '90 days', true)
                 when 'expires_soon' then k.expires_at < now() + interval '7 days'
                 else b.is_near_limit end)
 order by
   case when $1 = 'spent' and $5 then coalesce(b.month_spent, 0) end desc,
   case when $1 = 'spent' and not $5 then coalesce(b.month_spent, 0) end,
   case when $1 = 'used' and $5 then coalesce(b.last_used_at, '-infinity') end desc,
   case when $1 = 'used' and not $5 then coalesce(b.last_used_at, '-infinity') end,
   case when $1 = 'name' and $5 then lower(k.name) end desc,
   case when $1 = 'name' and not $5 then lower(k.name) end,
   case when $5 then k.key_id end desc,
   k.key_id
 limit $12 offset $13::int`,
  (p) => [p.sort, p.attention, p.accountId, p.after, p.descending, p.statuses, p.text, p.tags, p.values, p.withoutTag, p.keyIds, p.rows, p.skip],
  (v) => ({ keyId: v[0], revision: v[1], managedBy: v[2], status: v[3] }) as never,
  "",
  5000,
);

export type CountAttentionRow = { unused: number; expiresSoon: number; nearBudget: number };
/**
 * How many keys of an account deserve a look: were made more than 90 days ago and charged nothing
 * in the last 90 days, expire within 7 days, or have spent most of a limit. Neither revoked nor
 * expired ones.
 */
export const countAttention: One<{ accountId: string }, CountAttentionRow> = one(
  "keys/count-attention",
  `-- keys/count-attention
select count(*) filter (where k.created_at < now() - interval '90 days'
           and coalesce(b.last_used_at < now() - interval '90 days', true))::int4 as unused,
       count(*) filter (where k.expires_at < now() + interval '7 days')::int4 as expires_soon,
       count(*) filter (where b.is_near_limit)::int4 as near_budget
  from keys k
  join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
 where k.account_id = $1 and k.status = 'active'
   and (k.expires_at is null or k.expires_at > now())`,
  (p) => [p.accountId],
  (v) => ({ unused: v[0], expiresSoon: v[1], nearBudget: v[2] }) as never,
  "",
  5000,
);

export type LockKeyRow = { requestsPerMinute: number | null; allowedModels: string[]; accountReader: boolean; expiresAt: Date | null; isExpired: boolean; allowedAddresses: string[]; paused: boolean; pausedByOwner: boolean; pausedByProgram: boolean; limitedByOwner: boolean; limitedByProgram: boolean; tags: Json; dayLimit: bigint | null; weekLimit: bigint | null; monthLimit: bigint | null; totalLimit: bigint | null; runningLimit: number | null };
/**
 * The limits of an active key, locked until the end of the transaction, and whether it is paused
 * and has expired. No row: the key is revoked or does not exist.
 */
export const lockKey: Optional<{ keyId: string }, LockKeyRow> = optional(
  "keys/lock-key",
  `-- keys/lock-key
select k.requests_per_minute, k.allowed_models, k.account_reader, k.expires_at,
       coalesce(k.expires_at <= now(), false) as is_expired,
       k.allowed_addresses, k.paused, k.paused_by_owner, k.paused_by_program,
       k.limited_by_owner, k.limited_by_program,
       coalesce((select jsonb_object_agg(t.tag, t.value) from key_tags t where t.key_id = k.key_id),
         '{}') as tags,
       b.day_limit, b.week_limit, b.month_limit, b.total_limit, b.running_limit
  from keys k
  join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
 where k.key_id = $1 and k.status = 'active'
   for no key update of k`,
  (p) => [p.keyId],
  (v) => ({ requestsPerMinute: v[0], allowedModels: v[1], accountReader: v[2], expiresAt: v[3], isExpired: v[4], allowedAddresses: v[5], paused: v[6], pausedByOwner: v[7], pausedByProgram: v[8], limitedByOwner: v[9], limitedByProgram: v[10], tags: v[11], dayLimit: v[12], weekLimit: v[13], monthLimit: v[14], totalLimit: v[15], runningLimit: v[16] }) as never,
  "requestsPerMinute expiresAt dayLimit weekLimit monthLimit totalLimit runningLimit",
  5000,
);

export type FindManagersRow = { managedBy: string };
/**
 * All who manage these keys of an account. Without those of keys of another one.
 */
export const findManagers: Many<{ accountId: string; keyIds: readonly string[] }, FindManagersRow> = many(
  "keys/find-managers",
  `-- keys/find-managers
select distinct managed_by
  from keys
 where account_id = $1 and key_id = any($2)`,
  (p) => [p.accountId, p.keyIds],
  (v) => ({ managedBy: v[0] }) as never,
  "",
  5000,
);

export type LockKeysRow = { keyId: string; family: "v1" | "v2"; status: "active" | "revoked"; revision: number; managedBy: string; requestsPerMinute: number | null; allowedModels: string[]; accountReader: boolean; expiresAt: Date | null; isExpired: boolean; allowedAddresses: string[]; paused: boolean; pausedByOwner: boolean; pausedByProgram: boolean; limitedByOwner: boolean; limitedByProgram: boolean; tags: Json; dayLimit: bigint | null; weekLimit: bigint | null; monthLimit: bigint | null; totalLimit: bigint | null; runningLimit: number | null };
/**
 * The same of several keys of an account, in the order of their ids, the revoked ones included.
 */
export const lockKeys: Many<{ accountId: string; keyIds: readonly string[] }, LockKeysRow> = many(
  "keys/lock-keys",
  `-- keys/lock-keys
select k.key_id, k."family", k.status, k.revision, k.managed_by,
       k.requests_per_minute, k.allowed_models, k.account_reader, k.expires_at,
       coalesce(k.expires_at <= now(), false) as is_expired,
       k.allowed_addresses, k.paused, k.paused_by_owner, k.paused_by_program,
       k.limited_by_owner, k.limited_by_program,
       coalesce((select jsonb_object_agg(t.tag, t.value) from key_tags t where t.key_id = k.key_id),
         '{}') as tags,
       b.day_limit, b.week_limit, b.month_limit, b.total_limit, b.running_limit
  from keys k
  join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
 where k.account_id = $1 and k.key_id = any($2::text[])
 order by k.key_id
   for no key update of k`,
  (p) => [p.accountId, p.keyIds],
  (v) => ({ keyId: v[0], family: v[1], status: v[2], revision: v[3], managedBy: v[4], requestsPerMinute: v[5], allowedModels: v[6], accountReader: v[7], expiresAt: v[8], isExpired: v[9], allowedAddresses: v[10], paused: v[11], pausedByOwner: v[12], pausedByProgram: v[13], limitedByOwner: v[14], limitedByProgram: v[15], tags: v[16], dayLimit: v[17], weekLimit: v[18], monthLimit: v[19], totalLimit: v[20], runningLimit: v[21] }) as never,
  "requestsPerMinute expiresAt dayLimit weekLimit monthLimit totalLimit runningLimit",
  5000,
);

/**
 * Changes the members of keys whose flag is true. The keys are locked.
 * `limitedByOwner`: null: it stays as it is
 * `limitedByProgram`: as it
 * `changeId`: to which each key adds its own
 */
export const updateKeys: Run<{ hasName: boolean; name: string | null; hasRequestsPerMinute: boolean; requestsPerMinute: number | null; hasAllowedModels: boolean; allowedModels: readonly string[] | null; hasAccountReader: boolean; accountReader: boolean | null; hasExpiresAt: boolean; expiresAt: Date | string | null; hasAllowedAddresses: boolean; allowedAddresses: readonly string[] | null; limitedByOwner: boolean | null; limitedByProgram: boolean | null; keyIds: readonly string[]; changeId: string }> = run(
  "keys/update-keys",
  `-- keys/update-keys
with changed as (
  update keys
     set name = case when $1::boolean then $2::text else name end,
         requests_per_minute = case when $3::boolean
           then $4::integer else requests_per_minute end,
         allowed_models = case when $5::boolean
           then $6::text[] else allowed_models end,
         account_reader = case when $7::boolean
           then $8::boolean else account_reader end,
         expires_at = case when $9::boolean
           then $10::timestamptz else expires_at end,
         allowed_addresses = case when $11::boolean
           then $12::text[] else allowed_addresses end,
         limited_by_owner = coalesce($13::boolean, limited_by_owner),
         limited_by_program = coalesce($14::boolean, limited_by_program)
   where key_id = any($15::text[])
  returning key_id
)
insert into key_changes (change_id, key_id)
select $16 || '_' || key_id, key_id from changed`,
  (p) => [p.hasName, p.name, p.hasRequestsPerMinute, p.requestsPerMinute, p.hasAllowedModels, p.allowedModels, p.hasAccountReader, p.accountReader, p.hasExpiresAt, p.expiresAt, p.hasAllowedAddresses, p.allowedAddresses, p.limitedByOwner, p.limitedByProgram, p.keyIds, p.changeId],
  5000,
);

/**
 * Pauses keys, or resumes them. They are locked.
 * `pausedByOwner`: as the columns of a key
 * `changeId`: to which each key adds its own
 */
export const pauseKeys: Run<{ paused: boolean; pausedByOwner: boolean; pausedByProgram: boolean; keyIds: readonly string[]; changeId: string }> = run(
  "keys/pause-keys",
  `-- keys/pause-keys
with changed as (
  update keys
     set paused = $1::boolean, paused_by_owner = $2::boolean,
         paused_by_program = $3::boolean,
         paused_at = case when $1 and not paused then now() else paused_at end
   where key_id = any($4::text[])
  returning key_id
)
insert into key_changes (change_id, key_id)
select $5 || '_' || key_id, key_id from changed`,
  (p) => [p.paused, p.pausedByOwner, p.pausedByProgram, p.keyIds, p.changeId],
  5000,
);

/**
 * Lets another person manage the keys of an account that somebody manages, revoked ones included.
 * Locks them in the order of their ids, as all statements that lock several.
 * `next`: who manages them from now on; empty: nobody
 * `changeId`: to which each key adds its own
 */
export const handOverKeys: Run<{ accountId: string; managedBy: string; next: string; changeId: string }> = run(
  "keys/hand-over-keys",
  `-- keys/hand-over-keys
with ordered as materialized (
  select key_id
    from keys
   where account_id = $1 and managed_by = $2
   order by key_id
     for no key update
), changed as (
  update keys set managed_by = $3
    from ordered
   where keys.key_id = ordered.key_id
  returning keys.key_id
)
insert into key_changes (change_id, key_id)
select $4 || '_' || key_id, key_id from changed`,
  (p) => [p.accountId, p.managedBy, p.next, p.changeId],
  5000,
);

/**
 * Revokes those of the keys for good that are active. Locks them, unless they are.
 * `changeId`: to which each key adds its own
 */
export const revokeKeys: Run<{ keyIds: readonly string[]; changeId: string }> = run(
  "keys/revoke-keys",
  `-- keys/revoke-keys
with revoked as (
  update keys set status = 'revoked', revoked_at = now()
   where key_id = any($1::text[]) and status = 'active'
  returning key_id
)
insert into key_changes (change_id, key_id)
select $2 || '_' || key_id, key_id from revoked`,
  (p) => [p.keyIds, p.changeId],
  5000,
);

export type PauseManagedRow = { keyId: string };
/**
 * Pauses the keys of an account that somebody manages, as an owner does: also those that a member
 * or a program has paused and would resume. Returns those that it paused.
 * `changeId`: to which each key adds its own
 */
export const pauseManaged: Many<{ accountId: string; managedBy: string; changeId: string }, PauseManagedRow> = many(
  "keys/pause-managed",
  `-- keys/pause-managed
with ordered as materialized (
  select key_id
    from keys
   where account_id = $1 and managed_by = $2 and status = 'active'
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
select $3 || '_' || key_id, key_id from changed
returning key_id`,
  (p) => [p.accountId, p.managedBy, p.changeId],
  (v) => ({ keyId: v[0] }) as never,
  "",
  5000,
);

export type RevokeManagedRow = { keyId: string };
/**
 * Revokes, for good, the keys of an account that somebody manages. Returns those that it revoked.
 * `changeId`: to which each key adds its own
 */
export const revokeManaged: Many<{ accountId: string; managedBy: string; changeId: string }, RevokeManagedRow> = many(
  "keys/revoke-managed",
  `-- keys/revoke-managed
with ordered as materialized (
  select key_id
    from keys
   where account_id = $1 and managed_by = $2 and status = 'active'
   order by key_id
     for no key update
), revoked as (
  update keys set status = 'revoked', revoked_at = now()
    from ordered
   where keys.key_id = ordered.key_id
  returning keys.key_id
)
insert into key_changes (change_id, key_id)
select $3 || '_' || key_id, key_id from revoked
returning key_id`,
  (p) => [p.accountId, p.managedBy, p.changeId],
  (v) => ({ keyId: v[0] }) as never,
  "",
  5000,
);

export type RevokeAccountKeysRow = { keyId: string };
/**
 * Revokes all active keys of an account for good, and its management keys. Returns them. Locks the
 * management keys first, as calls of programs do, and each kind in the order of its ids.
 * `changeId`: to which each key adds its own
 */
export const revokeAccountKeys: Many<{ accountId: string; changeId: string }, RevokeAccountKeysRow> = many(
  "keys/revoke-account-keys",
  `-- keys/revoke-account-keys
with managers as materialized (
  select management_key_id
    from management_keys
   where account_id = $1 and revoked_at is null
   order by management_key_id
     for update
), active as materialized (
  select key_id
    from keys
   where account_id = $1 and status = 'active'
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
select $2 || '_' || key_id, key_id from revoked
returning key_id`,
  (p) => [p.accountId, p.changeId],
  (v) => ({ keyId: v[0] }) as never,
  "",
  5000,
);

// management.sql

/**
 * Adds a management key with its first secret. The account is locked.
 */
export const insertManagementKey: Run<{ managementKeyId: string; accountId: string; name: string; scopes: readonly string[]; mostKeys: number; childLimits: string; allowedAddresses: readonly string[]; createdBy: string; expiresAt: Date | string | null; digest: Buffer; hint: string }> = run(
  "keys/insert-management-key",
  `-- keys/insert-management-key
with made as (
  insert into management_keys
    (management_key_id, account_id, name, scopes, most_keys, child_limits, allowed_addresses,
     created_by, expires_at)
  values ($1, $2, $3, $4::text[], $5, $6::jsonb,
    $7::text[], $8, $9)
  returning management_key_id
)
insert into management_secrets (digest, management_key_id, shown, made_by)
select $10, management_key_id, $11, $8 from made`,
  (p) => [p.managementKeyId, p.accountId, p.name, p.scopes, p.mostKeys, p.childLimits, p.allowedAddresses, p.createdBy, p.expiresAt, p.digest, p.hint],
  5000,
);

export type FindManagementSecretsRow = { digest: Buffer; hint: string; managementKeyId: string; accountId: string; name: string; scopes: string[]; allowedAddresses: string[]; isRevoked: boolean; accountStatus: "active" | "suspended" | "closed"; expiresInMs: number | null; keyExpiresFirst: boolean };
/**
 * The secrets of management keys with these digests, and records their use, at most once a minute.
 */
export const findManagementSecrets: Many<{ digests: readonly Buffer[] }, FindManagementSecretsRow> = many(
  "keys/find-management-secrets",
  `-- keys/find-management-secrets
with touched as (
  update management_secrets set used_at = now()
   where digest in (select digest from management_secrets
                     where digest = any($1::bytea[])
                       and (used_at is null or used_at < now() - interval '50 seconds')
                       for update skip locked)
)
select s.digest, s.shown as hint, k.management_key_id, k.account_id, k.name, k.scopes,
       k.allowed_addresses, k.revoked_at is not null as is_revoked,
       a.status as account_status,
       -- Of the key and the secret, whichever expires first. Null: neither does.
       (extract(epoch from least(s.expires_at, k.expires_at) - clock_timestamp()) * 1000)::float8
         as expires_in_ms,
       coalesce(k.expires_at <= s.expires_at, k.expires_at is not null) as key_expires_first
  from management_secrets s
  join management_keys k on k.management_key_id = s.management_key_id
  join accounts a on a.account_id = k.account_id
 where s.digest = any($1::bytea[])`,
  (p) => [p.digests],
  (v) => ({ digest: v[0], hint: v[1], managementKeyId: v[2], accountId: v[3], name: v[4], scopes: v[5], allowedAddresses: v[6], isRevoked: v[7], accountStatus: v[8], expiresInMs: v[9], keyExpiresFirst: v[10] }) as never,
  "expiresInMs",
  5000,
);

export type FindManagementKeyRow = { managementKeyId: string; accountId: string; name: string; scopes: string[]; mostKeys: number; childLimits: Json; allowedAddresses: string[]; createdBy: string; createdAt: Date; expiresAt: Date | null; revokedAt: Date | null; liveKeys: number };
/**
 * One management key. No row: there is none.
 */
export const findManagementKey: Optional<{ managementKeyId: string }, FindManagementKeyRow> = optional(
  "keys/find-management-key",
  `-- keys/find-management-key
select k.management_key_id, k.account_id, k.name, k.scopes, k.most_keys, k.child_limits,
       k.allowed_addresses, k.created_by, k.created_at, k.expires_at, k.revoked_at,
       (select count(*) from keys c
         where c.managed_by = 'mgmt:' || k.management_key_id and c.status = 'active'
           and (c.expires_at is null or c.expires_at > now()))::int4 as live_keys
  from management_keys k
 where k.management_key_id = $1`,
  (p) => [p.managementKeyId],
  (v) => ({ managementKeyId: v[0], accountId: v[1], name: v[2], scopes: v[3], mostKeys: v[4], childLimits: v[5], allowedAddresses: v[6], createdBy: v[7], createdAt: v[8], expiresAt: v[9], revokedAt: v[10], liveKeys: v[11] }) as never,
  "expiresAt revokedAt",
  5000,
);

export type ListManagementKeysRow = { managementKeyId: string; accountId: string; name: string; scopes: string[]; mostKeys: number; childLimits: Json; allowedAddresses: string[]; createdBy: string; createdAt: Date; expiresAt: Date | null; revokedAt: Date | null; liveKeys: number };
/**
 * The management keys of an account, oldest first.
 * `after`: a management_key_id; empty: from the first
 */
export const listManagementKeys: Many<{ accountId: string; after: string; rows: bigint | number }, ListManagementKeysRow> = many(
  "keys/list-management-keys",
  `-- keys/list-management-keys
select k.management_key_id, k.account_id, k.name, k.scopes, k.most_keys, k.child_limits,
       k.allowed_addresses, k.created_by, k.created_at, k.expires_at, k.revoked_at,
       (select count(*) from keys c
         where c.managed_by = 'mgmt:' || k.management_key_id and c.status = 'active'
           and (c.expires_at is null or c.expires_at > now()))::int4 as live_keys
  from management_keys k
 where k.account_id = $1 and k.management_key_id > $2
 order by k.management_key_id
 limit $3`,
  (p) => [p.accountId, p.after, p.rows],
  (v) => ({ managementKeyId: v[0], accountId: v[1], name: v[2], scopes: v[3], mostKeys: v[4], childLimits: v[5], allowedAddresses: v[6], createdBy: v[7], createdAt: v[8], expiresAt: v[9], revokedAt: v[10], liveKeys: v[11] }) as never,
  "expiresAt revokedAt",
  5000,
);

export type FindManagementKeyOfRow = { managementKeyId: string };
/**
 * A management key of an account that is not revoked. No row: there is none.
 */
export const findManagementKeyOf: Optional<{ managementKeyId: string; accountId: string }, FindManagementKeyOfRow> = optional(
  "keys/find-management-key-of",
  `-- keys/find-management-key-of
select management_key_id
  from management_keys
 where management_key_id = $1 and account_id = $2
   and revoked_at is null`,
  (p) => [p.managementKeyId, p.accountId],
  (v) => ({ managementKeyId: v[0] }) as never,
  "",
  5000,
);

export type ListManagementSecretsRow = { managementKeyId: string; hint: string; createdAt: Date; expiresAt: Date | null; lastUsedAt: Date | null };
/**
 * The secrets of these management keys, newest first: the valid ones, and the newest five.
 */
export const listManagementSecrets: Many<{ managementKeyIds: readonly string[] }, ListManagementSecretsRow> = many(
  "keys/list-management-secrets",
  `-- keys/list-management-secrets
select management_key_id, hint, created_at, expires_at, last_used_at
  from (select management_key_id, shown as hint, created_at, expires_at, used_at as last_used_at,
               row_number() over (
                 partition by management_key_id order by created_at desc, digest
               ) as rank
          from management_secrets
         where management_key_id = any($1::text[])) ranked
 where rank <= 5 or expires_at is null or expires_at > now()
 order by management_key_id, rank`,
  (p) => [p.managementKeyIds],
  (v) => ({ managementKeyId: v[0], hint: v[1], createdAt: v[2], expiresAt: v[3], lastUsedAt: v[4] }) as never,
  "expiresAt lastUsedAt",
  5000,
);

export type CountManagementKeysRow = { keys: number };
/**
 * How many management keys of an account are not revoked.
 */
export const countManagementKeys: One<{ accountId: string }, CountManagementKeysRow> = one(
  "keys/count-management-keys",
  `-- keys/count-management-keys
select count(*)::int4 as keys
  from management_keys
 where account_id = $1 and revoked_at is null`,
  (p) => [p.accountId],
  (v) => ({ keys: v[0] }) as never,
  "",
  5000,
);

export type CountManagedRow = { keys: number };
/**
 * How many keys that somebody manages are neither revoked nor expired.
 */
export const countManaged: One<{ managedBy: string }, CountManagedRow> = one(
  "keys/count-managed",
  `-- keys/count-managed
select count(*)::int4 as keys
  from keys
 where managed_by = $1 and status = 'active'
   and (expires_at is null or expires_at > now())`,
  (p) => [p.managedBy],
  (v) => ({ keys: v[0] }) as never,
  "",
  5000,
);

export type ShareManagementKeysRow = { managementKeyId: string; scopes: string[]; mostKeys: number; childLimits: Json; isUsable: boolean };
/**
 * Management keys, which stay as they are until the end of the transaction, in the order of their
 * ids, and whether each may be used: it is not revoked, and has not expired.
 */
export const shareManagementKeys: Many<{ managementKeyIds: readonly string[] }, ShareManagementKeysRow> = many(
  "keys/share-management-keys",
  `-- keys/share-management-keys
select management_key_id, scopes, most_keys, child_limits,
       revoked_at is null and (expires_at is null or expires_at > now()) as is_usable
  from management_keys
 where management_key_id = any($1::text[])
 order by management_key_id
   for share`,
  (p) => [p.managementKeyIds],
  (v) => ({ managementKeyId: v[0], scopes: v[1], mostKeys: v[2], childLimits: v[3], isUsable: v[4] }) as never,
  "",
  5000,
);

export type LockManagementKeyRow = { name: string; scopes: string[]; mostKeys: number; childLimits: Json; allowedAddresses: string[]; expiresAt: Date | null };
/**
 * What can be changed of a management key that is not revoked, locked until the end of the
 * transaction. No row: it is revoked, or there is none.
 */
export const lockManagementKey: Optional<{ managementKeyId: string }, LockManagementKeyRow> = optional(
  "keys/lock-management-key",
  `-- keys/lock-management-key
select name, scopes, most_keys, child_limits, allowed_addresses, expires_at
  from management_keys
 where management_key_id = $1 and revoked_at is null
   for update`,
  (p) => [p.managementKeyId],
  (v) => ({ name: v[0], scopes: v[1], mostKeys: v[2], childLimits: v[3], allowedAddresses: v[4], expiresAt: v[5] }) as never,
  "expiresAt",
  5000,
);

/**
 * Changes a management key, which is locked.
 */
export const updateManagementKey: Run<{ name: string; scopes: readonly string[]; mostKeys: number; childLimits: string; allowedAddresses: readonly string[]; expiresAt: Date | string | null; managementKeyId: string; changeId: string }> = run(
  "keys/update-management-key",
  `-- keys/update-management-key
with changed as (
  update management_keys
     set name = $1, scopes = $2::text[], most_keys = $3,
         child_limits = $4::jsonb, allowed_addresses = $5::text[],
         expires_at = $6
   where management_key_id = $7
  returning management_key_id
)
insert into key_changes (change_id, key_id)
select $8, management_key_id from changed`,
  (p) => [p.name, p.scopes, p.mostKeys, p.childLimits, p.allowedAddresses, p.expiresAt, p.managementKeyId, p.changeId],
  5000,
);

/**
 * Adds a secret to a management key, which is locked. The earlier ones expire after the overlap, or
 * at an earlier expiry that they already have.
 */
export const rotateManagementKey: Run<{ overlapMs: number; managementKeyId: string; digest: Buffer; hint: string; madeBy: string; changeId: string }> = run(
  "keys/rotate-management-key",
  `-- keys/rotate-management-key
with ended as (
  update management_secrets
     set expires_at = least(expires_at, now() + $1::float8 * interval '1 millisecond')
   where management_key_id = $2
), minted as (
  insert into management_secrets (digest, management_key_id, shown, made_by)
  values ($3, $2, $4, $5)
)
insert into key_changes (change_id, key_id) values ($6, $2)`,
  (p) => [p.overlapMs, p.managementKeyId, p.digest, p.hint, p.madeBy, p.changeId],
  5000,
);

export type ListMadeSecretsRow = { keyId: string; accountId: string; name: string; hint: string };
/**
 * The management keys that somebody could still use, with the newest secret that he has seen, in
 * the order of their accounts.
 */
export const listMadeSecrets: Many<{ madeBy: string }, ListMadeSecretsRow> = many(
  "keys/list-made-secrets",
  `-- keys/list-made-secrets
select distinct on (k.account_id, k.management_key_id)
       k.management_key_id as key_id, k.account_id, k.name, s.shown as hint
  from management_secrets s
  join management_keys k on k.management_key_id = s.management_key_id
 where s.made_by = $1 and k.revoked_at is null
   and (s.expires_at is null or s.expires_at > now())
 order by k.account_id, k.management_key_id, s.created_at desc`,
  (p) => [p.madeBy],
  (v) => ({ keyId: v[0], accountId: v[1], name: v[2], hint: v[3] }) as never,
  "",
  5000,
);

export type EndMadeSecretsRow = { keyId: string };
/**
 * Ends the secrets of management keys of an account that somebody has seen, also of those that have
 * expired and may be used again. Returns these management keys.
 * `changeId`: to which each adds its own
 */
export const endMadeSecrets: Many<{ accountId: string; madeBy: string; changeId: string }, EndMadeSecretsRow> = many(
  "keys/end-made-secrets",
  `-- keys/end-made-secrets
with locked as (
  select management_key_id
    from management_keys
   where account_id = $1 and revoked_at is null
   order by management_key_id
     for update
), ended as (
  update management_secrets s set expires_at = now()
    from locked
   where s.management_key_id = locked.management_key_id and s.made_by = $2
     and (s.expires_at is null or s.expires_at > now())
  returning s.management_key_id
)
insert into key_changes (change_id, key_id)
select distinct $3 || '_' || management_key_id, management_key_id from ended
returning key_id`,
  (p) => [p.accountId, p.madeBy, p.changeId],
  (v) => ({ keyId: v[0] }) as never,
  "",
  5000,
);

/**
 * Revokes a management key for good. Changes no row: it is revoked already.
 */
export const revokeManagementKey: Run<{ managementKeyId: string; changeId: string }> = run(
  "keys/revoke-management-key",
  `-- keys/revoke-management-key
with revoked as (
  update management_keys set revoked_at = now()
   where management_key_id = $1 and revoked_at is null
  returning management_key_id
)
insert into key_changes (change_id, key_id)
select $2, management_key_id from revoked`,
  (p) => [p.managementKeyId, p.changeId],
  5000,
);

export type CountChangeRow = { calls: number };
/**
 * Counts a changing call of a management key. No row: it has made as many as it may since a moment
 * that is less than a minute ago.
 */
export const countChange: Optional<{ managementKeyId: string; most: number }, CountChangeRow> = optional(
  "keys/count-change",
  `-- keys/count-change
update management_keys
   set calls = case when calls_from <= now() - interval '1 minute' then 1 else calls + 1 end,
       calls_from = case when calls_from <= now() - interval '1 minute' then now()
                         else calls_from end
 where management_key_id = $1
   and (calls < $2::int4 or calls_from <= now() - interval '1 minute')
returning calls`,
  (p) => [p.managementKeyId, p.most],
  (v) => ({ calls: v[0] }) as never,
  "",
  5000,
);

export type ReadChangesFromRow = { callsFrom: Date };
/**
 * Since when the changing calls of a management key are counted.
 */
export const readChangesFrom: Optional<{ managementKeyId: string }, ReadChangesFromRow> = optional(
  "keys/read-changes-from",
  `-- keys/read-changes-from
select calls_from from management_keys where management_key_id = $1`,
  (p) => [p.managementKeyId],
  (v) => ({ callsFrom: v[0] }) as never,
  "",
  5000,
);

// secrets.sql

export type FindSecretsRow = { digest: Buffer; secretId: string; hint: string; secretCreatedAt: Date; secretExpiresAt: Date | null; secretRevokedAt: Date | null; expiresInMs: number | null; useIsDue: boolean; status: "active" | "paused" | "expired" | "revoked"; keyId: string; accountId: string; family: "v1" | "v2"; name: string; requestsPerMinute: number | null; allowedModels: string[]; accountReader: boolean; createdBy: string; managedBy: string; limitedByOwner: boolean; paused: boolean; pausedAt: Date | null; pausedByOwner: boolean; expiresAt: Date | null; createdAt: Date; revokedAt: Date | null; allowedAddresses: string[]; accountStatus: "active" | "suspended" | "closed"; priceListId: string | null; dayLimit: bigint | null; weekLimit: bigint | null; monthLimit: bigint | null; totalLimit: bigint | null; runningLimit: number | null; isLimited: boolean };
/**
 * The secrets with these digests, with their keys. No row for an unknown digest.
 */
export const findSecrets: Many<{ digests: readonly Buffer[] }, FindSecretsRow> = many(
  "keys/find-secrets",
  `-- keys/find-secrets
select s.digest, s.secret_id, s.shown as hint, s.created_at as secret_created_at,
       s.expires_at as secret_expires_at, s.revoked_at as secret_revoked_at,
       -- By this server's clock, so that nodes with other clocks agree. Of the key and the secret,
       -- whichever expires first. Null: neither does.
       (extract(epoch from least(s.expires_at, k.expires_at) - clock_timestamp()) * 1000)::float8
         as expires_in_ms,
       coalesce(s.last_used_at < now() - interval '1 minute', true) as use_is_due,
       case when k.status = 'revoked' then 'revoked'
            when k.expires_at <= now() then 'expired'
            when k.paused then 'paused'
            else 'active' end as status,
       k.key_id, k.account_id, k."family", k.name, k.requests_per_minute, k.allowed_models,
       k.account_reader, k.created_by, k.managed_by, k.limited_by_owner, k.paused,
       case when k.paused then coalesce(k.paused_at, k.created_at) end as paused_at,
       k.paused_by_owner, k.expires_at,
       k.created_at, k.revoked_at, k.allowed_addresses, a.status as account_status,
       a.price_list_id,
       b.day_limit, b.week_limit, b.month_limit, b.total_limit, b.running_limit,
       b.is_limited or exists (
         select 1
           from budgets m
          where m.account_id = k.account_id and m."family" = k."family" and m.payer = k.managed_by
            and m.is_limited) as is_limited
  from key_secrets s
  join keys k on k.key_id = s.key_id
  join accounts a on a.account_id = k.account_id
  join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
 where s.digest = any($1::bytea[])`,
  (p) => [p.digests],
  (v) => ({ digest: v[0], secretId: v[1], hint: v[2], secretCreatedAt: v[3], secretExpiresAt: v[4], secretRevokedAt: v[5], expiresInMs: v[6], useIsDue: v[7], status: v[8], keyId: v[9], accountId: v[10], family: v[11], name: v[12], requestsPerMinute: v[13], allowedModels: v[14], accountReader: v[15], createdBy: v[16], managedBy: v[17], limitedByOwner: v[18], paused: v[19], pausedAt: v[20], pausedByOwner: v[21], expiresAt: v[22], createdAt: v[23], revokedAt: v[24], allowedAddresses: v[25], accountStatus: v[26], priceListId: v[27], dayLimit: v[28], weekLimit: v[29], monthLimit: v[30], totalLimit: v[31], runningLimit: v[32], isLimited: v[33] }) as never,
  "secretExpiresAt secretRevokedAt expiresInMs requestsPerMinute pausedAt expiresAt revokedAt priceListId dayLimit weekLimit monthLimit totalLimit runningLimit",
  5000,
);

export type ReadSecretsRow = { keyId: string; secretId: string; hint: string; createdAt: Date; expiresAt: Date | null; revokedAt: Date | null; lastUsedAt: Date | null };
/**
 * Secrets of these keys, newest first: all valid ones, and the newest twenty in any state.
 */
export const readSecrets: Many<{ keyIds: readonly string[] }, ReadSecretsRow> = many(
  "keys/read-secrets",
  `-- keys/read-secrets
select key_id, secret_id, shown as hint, created_at, expires_at, revoked_at, last_used_at
  from (select key_id, secret_id, shown, created_at, expires_at, revoked_at, last_used_at,
               row_number() over (
                 partition by key_id order by created_at desc, secret_id desc
               ) as rank
          from key_secrets
         where key_id = any($1::text[])) ranked
 where rank <= 20 or (revoked_at is null and (expires_at is null or expires_at > now()))
 order by key_id, rank`,
  (p) => [p.keyIds],
  (v) => ({ keyId: v[0], secretId: v[1], hint: v[2], createdAt: v[3], expiresAt: v[4], revokedAt: v[5], lastUsedAt: v[6] }) as never,
  "expiresAt revokedAt lastUsedAt",
  5000,
);

export type ReadLiveSecretsRow = { secretId: string; accountStatus: "active" | "suspended" | "closed" };
/**
 * Secrets of a key that are not revoked, with the status of its account. Expired ones are included:
 * a request that started before the expiry may finish.
 */
export const readLiveSecrets: Many<{ keyId: string }, ReadLiveSecretsRow> = many(
  "keys/read-live-secrets",
  `-- keys/read-live-secrets
select s.secret_id, a.status as account_status
  from key_secrets s
  join keys k on k.key_id = s.key_id
  join accounts a on a.account_id = k.account_id
 where s.key_id = $1 and s.revoked_at is null and k.status = 'active'`,
  (p) => [p.keyId],
  (v) => ({ secretId: v[0], accountStatus: v[1] }) as never,
  "",
  5000,
);

export type HasSecretRow = { secretId: string };
/**
 * One row if the secret belongs to the key, also if it is revoked or expired.
 */
export const hasSecret: Optional<{ keyId: string; secretId: string }, HasSecretRow> = optional(
  "keys/has-secret",
  `-- keys/has-secret
select secret_id from key_secrets where key_id = $1 and secret_id = $2`,
  (p) => [p.keyId, p.secretId],
  (v) => ({ secretId: v[0] }) as never,
  "",
  5000,
);

/**
 * Adds a secret to an active key. The earlier secrets expire after the overlap, or at an earlier
 * expiry that they already have. Changes no row: the key is revoked or does not exist.
 */
export const rotateKey: Run<{ keyId: string; overlapMs: number; digest: Buffer; secretId: string; hint: string; changeId: string }> = run(
  "keys/rotate-key",
  `-- keys/rotate-key
with active as (
  -- The lock keeps the key from being revoked before the new secret is written.
  select key_id from keys where key_id = $1 and status = 'active' for no key update
), ended as (
  update key_secrets
     set expires_at = least(expires_at, now() + $2::float8 * interval '1 millisecond')
   where key_id in (select key_id from active) and revoked_at is null
), minted as (
  insert into key_secrets (digest, secret_id, key_id, shown)
  select $3, $4, key_id, $5 from active
)
insert into key_changes (change_id, key_id)
select $6, key_id from active`,
  (p) => [p.keyId, p.overlapMs, p.digest, p.secretId, p.hint, p.changeId],
  5000,
);

/**
 * Records a use of each of these secrets, at most once a minute, whichever node it is.
 */
export const recordUses: Run<{ secretIds: readonly string[] }> = run(
  "keys/record-uses",
  `-- keys/record-uses
update key_secrets set last_used_at = now()
 where secret_id = any($1::text[])
   and (last_used_at is null or last_used_at < now() - interval '1 minute')`,
  (p) => [p.secretIds],
  5000,
);

/**
 * Revokes one secret of a key for good. Changes no row: it is already revoked, or does not exist.
 */
export const revokeSecret: Run<{ keyId: string; secretId: string; changeId: string }> = run(
  "keys/revoke-secret",
  `-- keys/revoke-secret
with revoked as (
  update key_secrets set revoked_at = now()
   where key_id = $1 and secret_id = $2 and revoked_at is null
  returning key_id
)
insert into key_changes (change_id, key_id)
select $3, key_id from revoked`,
  (p) => [p.keyId, p.secretId, p.changeId],
  5000,
);
