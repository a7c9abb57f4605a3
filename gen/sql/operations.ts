// Made of src/operations/sql by `npm run generate`. Do not edit.

import { type Many, many, type One, one, type Optional, optional, type Run, run } from "../../src/postgres/statement.ts";

// accounts.sql

export type FindAccountsRow = { accountId: string };
/**
 * Lists accounts, newest first: all of them, or those that match.
 * `before`: the last one of the page before
 * `text`: part of a name, or of the login or the address of an owner; empty: all
 * `matching`: accounts that match the text in another way
 * `status`: null: any
 * `among`: the only accounts to look at; null: all
 */
export const findAccounts: Many<{ before: string | null; status: "active" | "suspended" | "closed" | null; among: readonly string[] | null; text: string; matching: readonly string[]; rows: bigint | number }, FindAccountsRow> = many(
  "operations/find-accounts",
  `-- operations/find-accounts
select a.account_id
from accounts a
where ($1::text is null or a.account_id < $1)
  and ($2::text is null or a.status = $2)
  and ($3::text[] is null or a.account_id = any($3::text[]))
  and ($4::text = '' or strpos(lower(a.name), $4) > 0 or a.account_id = any($5::text[])
    or exists (
      select 1
      from members m
      join people p on p.person_id = m.person_id
      where m.account_id = a.account_id and m.role = 'owner'
        and (strpos(p.login, $4) > 0 or strpos(lower(p.email), $4) > 0)))
order by a.account_id desc
limit $6`,
  (p) => [p.before, p.status, p.among, p.text, p.matching, p.rows],
  (v) => ({ accountId: v[0] }) as never,
  "",
);

// notes.sql

/**
 * Adds a note. Changes no row: the account does not exist.
 */
export const insertNote: Run<{ noteId: string; by: string; text: string; accountId: string }> = run(
  "operations/insert-note",
  `-- operations/insert-note
insert into account_notes (account_id, note_id, by, text)
select account_id, $1, $2, $3
from accounts
where account_id = $4`,
  (p) => [p.noteId, p.by, p.text, p.accountId],
  5000,
);

export type FindNoteRow = { noteId: string; accountId: string; at: Date; by: string; text: string };
/**
 * Finds a note.
 */
export const findNote: Optional<{ accountId: string; noteId: string }, FindNoteRow> = optional(
  "operations/find-note",
  `-- operations/find-note
select note_id, account_id, at, by, text
from account_notes
where account_id = $1 and note_id = $2`,
  (p) => [p.accountId, p.noteId],
  (v) => ({ noteId: v[0], accountId: v[1], at: v[2], by: v[3], text: v[4] }) as never,
  "",
  5000,
);

export type ListNotesRow = { noteId: string; accountId: string; at: Date; by: string; text: string };
/**
 * Lists the notes about an account, newest first.
 * `before`: the last one of the page before
 */
export const listNotes: Many<{ accountId: string; before: string | null; rows: bigint | number }, ListNotesRow> = many(
  "operations/list-notes",
  `-- operations/list-notes
select note_id, account_id, at, by, text
from account_notes
where account_id = $1 and ($2::text is null or note_id < $2)
order by note_id desc
limit $3`,
  (p) => [p.accountId, p.before, p.rows],
  (v) => ({ noteId: v[0], accountId: v[1], at: v[2], by: v[3], text: v[4] }) as never,
  "",
  5000,
);

// purchases.sql

export type HasAccountRow = { hasAccount: boolean };
/**
 * True if there is such an account.
 */
export const hasAccount: One<{ accountId: string }, HasAccountRow> = one(
  "operations/has-account",
  `-- operations/has-account
select exists (select from accounts where account_id = $1) as has_account`,
  (p) => [p.accountId],
  (v) => ({ hasAccount: v[0] }) as never,
  "",
  5000,
);

export type ListPromotionUsesRow = { codeId: string; name: string; family: "v1" | "v2"; bonusMicro: bigint; orderId: string; isTakenBack: boolean; usedAt: Date; transferId: string };
/**
 * Lists the promotions that an account used, newest first.
 * `before`: the last one of the page before
 */
export const listPromotionUses: Many<{ accountId: string; before: string | null; rows: bigint | number }, ListPromotionUsesRow> = many(
  "operations/list-promotion-uses",
  `-- operations/list-promotion-uses
select p.code_id, p.name, p."family", p.bonus_micro, coalesce(u.order_id, '') as order_id,
  u.refund_n is not null as is_taken_back, u.used_at,
  coalesce(u.transfer_id, '') as transfer_id
from promotion_uses u
join promotions p on p.code_id = u.code_id
where u.account_id = $1
  and ($2::text is null or (u.used_at, u.code_id) < (
    select used_at, code_id
    from promotion_uses
    where account_id = $1 and code_id = $2))
order by u.used_at desc, u.code_id desc
limit $3`,
  (p) => [p.accountId, p.before, p.rows],
  (v) => ({ codeId: v[0], name: v[1], family: v[2], bonusMicro: v[3], orderId: v[4], isTakenBack: v[5], usedAt: v[6], transferId: v[7] }) as never,
  "",
  5000,
);

export type ListDocumentsOfRow = { number: string; kind: "receipt" | "credit_note"; orderId: string; issuedAt: Date };
/**
 * Lists the receipts and credit notes of an account, newest first.
 * `before`: the number of the last one of the page before
 */
export const listDocumentsOf: Many<{ accountId: string; before: string | null; rows: bigint | number }, ListDocumentsOfRow> = many(
  "operations/list-documents-of",
  `-- operations/list-documents-of
select d.number, d.kind, d.order_id, d.issued_at
from payment_orders o
join payment_documents d on d.order_id = o.order_id
where o.account_id = $1
  and ($2::text is null or (d.issued_at, d.number) < (
    select issued_at, number from payment_documents where number = $2))
order by d.issued_at desc, d.number desc
limit $3`,
  (p) => [p.accountId, p.before, p.rows],
  (v) => ({ number: v[0], kind: v[1], orderId: v[2], issuedAt: v[3] }) as never,
  "",
  5000,
);

// search.sql

export type FollowIndexesRow = { enableSeqscan: string };
/**
 * Makes the statements of a transaction follow indexes.
 */
export const followIndexes: One<undefined, FollowIndexesRow> = one(
  "operations/follow-indexes",
  `-- operations/follow-indexes
select set_config('enable_seqscan', 'off', true) as enable_seqscan`,
  () => [],
  (v) => ({ enableSeqscan: v[0] }) as never,
  "",
  5000,
);

export type SearchIdsRow = { kind: string; id: string; accountId: string; accountName: string; title: string; at: Date };
/**
 * Finds what has a text as its id, number, hash or address. A thing that is found in several ways
 * may have several rows.
 * `small`: the text in small letters
 * `hash`: the text in small letters, without `0x`
 * `digest`: SHA-256 of the text
 * `accountId`: only what is of this account; null: of all
 */
export const searchIds: Many<{ text: string; hash: string; digest: Buffer; accountId: string | null; small: string }, SearchIdsRow> = many(
  "operations/search-ids",
  `-- operations/search-ids
with payments as (
  select processor, external_id from payment_deposits where external_id = $1
  union
  select processor, external_id from chain_payments where external_id = $1
  union
  select processor, external_id
  from payment_transactions
  where tx = any(array[$2, '0x' || $2])
), hits as (
  select 'account' as kind, a.account_id as id, a.account_id, a.name as title, a.created_at as at
  from accounts a
  where a.account_id = $1
  union all
  select 'key', k.key_id, k.account_id, k.name, k.created_at
  from (
    select $1 as key_id
    union
    select key_id from key_secrets where secret_id = $1
    union
    select key_id from key_secrets where digest = $3
  ) f
  join keys k on k.key_id = f.key_id
  union all
  select 'management_key', m.management_key_id, m.account_id, m.name, m.created_at
  from (
    select $1 as management_key_id
    union
    select management_key_id from management_secrets where digest = $3
  ) f
  join management_keys m on m.management_key_id = f.management_key_id
  union all
  select 'person', p.person_id, '', coalesce(p.login, ''), p.created_at
  from people p
  where p.person_id = $1
  union all
  select 'order', o.order_id, o.account_id, '', o.created_at
  from (
    select $1 as order_id
    union
    select order_id from payment_orders where external_id = $1
  ) f
  join payment_orders o on o.order_id = f.order_id
  union all
  select 'document', d.order_id, o.account_id, d.number, d.issued_at
  from payment_documents d
  join payment_orders o on o.order_id = d.order_id
  where d.number = upper($1)
  union all
  select 'transfer', t.transfer_id, t.account_id, t.reason, t.created_at
  from transfers t
  where t.transfer_id = $1
  union all
  (
    select 'promotion', u.code_id, u.account_id, p.name, u.used_at
    from promotion_uses u
    join promotions p on p.code_id = u.code_id
    where u.code_id = $1 and ($4::text is null or u.account_id = $4)
    order by u.account_id
    limit 20
  )
  union all
  select case when d.order_id is null then 'payment' else 'order' end,
    coalesce(d.order_id, d.external_id), d.account_id, '', d.first_seen_at
  from payments f
  join payment_deposits d on d.processor = f.processor and d.external_id = f.external_id
  union all
  select case when c.order_id is null then 'payment' else 'order' end,
    coalesce(c.order_id, c.external_id), a.account_id, '', c.first_seen_at
  from payments f
  join chain_payments c on c.processor = f.processor and c.external_id = f.external_id
  join deposit_addresses a on a.address = c.address
  union all
  select 'address', a.address, a.account_id, '', a.created_at
  from deposit_addresses a
  where a.address = any(array[$1, $5])
  union all
  (
    select 'order', o.order_id, o.account_id, '', o.created_at
    from payment_orders o
    where lower(o.pay_to) = $5 and o.pay_to <> '' and not exists (
        select from deposit_addresses a where a.address = any(array[$1, $5])
      )
      and ($4::text is null or o.account_id = $4)
    order by o.created_at desc
    limit 20
  )
)
select h.kind as kind, h.id as id, h.account_id as account_id,
  coalesce(a.name, '') as account_name, h.title as title, h.at as at
from hits h
left join accounts a on a.account_id = h.account_id
where $4::text is null or h.account_id = $4
limit 100`,
  (p) => [p.text, p.hash, p.digest, p.accountId, p.small],
  (v) => ({ kind: v[0], id: v[1], accountId: v[2], accountName: v[3], title: v[4], at: v[5] }) as never,
  "",
  5000,
);

export type SearchPaymentsRow = { kind: string; id: string; accountId: string; accountName: string; title: string; at: Date };
/**
 * Finds what arrived of an asset in an amount on a UTC day, newest first.
 * `coins`: whole coins
 * `atoms`: the amount in atoms, for each number of decimals that a coin may have
 * `day`: 2026-11-20
 * `accountId`: only what arrived for this account; null: for all
 */
export const searchPayments: Many<{ asset: string; atoms: readonly (string | bigint)[]; coins: string | bigint; day: string; accountId: string | null }, SearchPaymentsRow> = many(
  "operations/search-payments",
  `-- operations/search-payments
select case when d.order_id is null then 'payment' else 'order' end as kind,
  coalesce(d.order_id, d.external_id) as id, d.account_id as account_id,
  coalesce(a.name, '') as account_name, '' as title, d.first_seen_at as at
from payment_deposits d
left join accounts a on a.account_id = d.account_id
where d.asset = $1 and d.atoms = any($2::numeric[])
  and d.atoms = $3::numeric * ('1e' || d.decimals)::numeric
  and d.first_seen_at >= $4::date::timestamp at time zone 'utc'
  and d.first_seen_at < ($4::date + 1)::timestamp at time zone 'utc'
  and ($5::text is null or d.account_id = $5)
order by d.first_seen_at desc
limit 21`,
  (p) => [p.asset, p.atoms, p.coins, p.day, p.accountId],
  (v) => ({ kind: v[0], id: v[1], accountId: v[2], accountName: v[3], title: v[4], at: v[5] }) as never,
  "",
  5000,
);

export type SearchHintsRow = { kind: string; id: string; accountId: string; accountName: string; title: string; at: Date };
/**
 * Finds keys by the first and the last characters of a secret.
 * `first`: not empty
 * `last`: empty unless all of the first ones are known
 */
export const searchHints: Many<{ first: string; last: string }, SearchHintsRow> = many(
  "operations/search-hints",
  `-- operations/search-hints
select 'key' as kind, k.key_id as id, k.account_id as account_id,
  a.name as account_name, k.name as title, k.created_at as at
from (
  select key_id
  from key_secrets
  where shown collate "C" >= $1 and shown collate "C" < $1 || chr(1114111)
    and right(shown, length($2)) = $2
  order by shown collate "C"
  -- More than a few are of a beginning that is too short to choose from.
  limit 10
) s
join keys k on k.key_id = s.key_id
join accounts a on a.account_id = k.account_id`,
  (p) => [p.first, p.last],
  (v) => ({ kind: v[0], id: v[1], accountId: v[2], accountName: v[3], title: v[4], at: v[5] }) as never,
  "",
  5000,
);

export type SearchNamesRow = { kind: string; id: string; accountId: string; accountName: string; title: string; at: Date };
/**
 * Finds accounts and people: first those whose name, login or address begins with a text, then
 * those with a name of which words do.
 * `small`: the text in small letters
 * `words`: a tsquery; null: too short to look for words
 */
export const searchNames: Many<{ small: string; text: string; words: string | null }, SearchNamesRow> = many(
  "operations/search-names",
  `-- operations/search-names
with people_found as (
  (
    select person_id
    from people
    where login >= $1 and login < $1 || chr(1114111)
    order by login
    limit 21
  )
  union
  (
    select person_id
    from people
    where lower(email) collate "C" >= $1 and lower(email) collate "C" < $1 || chr(1114111)
    order by lower(email) collate "C"
    limit 21
  )
  union
  (
    select person_id
    from people
    where lower(name) collate "C" >= lower($2) collate "C"
      and lower(name) collate "C" < (lower($2) || chr(1114111)) collate "C"
      and login is not null
    order by lower(name) collate "C"
    limit 21
  )
), hits as (
  (
    select 1 as rank, 'account' as kind, a.account_id as id, a.name as title, a.created_at as at
    from accounts a
    where lower(a.name) collate "C" >= lower($2) collate "C"
      and lower(a.name) collate "C" < (lower($2) || chr(1114111)) collate "C"
    order by lower(a.name) collate "C"
    limit 21
  )
  union all
  select 1, 'person', p.person_id, coalesce(p.login, ''), p.created_at
  from people_found f
  join people p on p.person_id = f.person_id
  union all
  (
    select 2, 'account', a.account_id, a.name, a.created_at
    from accounts a
    where $3::text is not null
      and array_to_tsvector(array_remove(string_to_array(lower(a.name), ' '), ''))
        @@ lower($3::text)::tsquery
    limit 21
  )
  union all
  (
    select 2, 'person', p.person_id, coalesce(p.login, ''), p.created_at
    from people p
    where $3::text is not null
      and array_to_tsvector(array_remove(string_to_array(lower(p.name), ' '), ''))
        @@ lower($3::text)::tsquery
    limit 21
  )
)
select h.kind as kind, h.id as id, case h.kind when 'account' then h.id else '' end
  as account_id, case h.kind when 'account' then h.title else '' end as account_name,
  h.title as title, h.at as at
from hits h
order by h.rank, h.title
limit 100`,
  (p) => [p.small, p.text, p.words],
  (v) => ({ kind: v[0], id: v[1], accountId: v[2], accountName: v[3], title: v[4], at: v[5] }) as never,
  "",
  5000,
);

export type ReadNamesRow = { accountId: string; name: string };
/**
 * Reads the names of accounts.
 */
export const readNames: Many<{ accountIds: readonly string[] }, ReadNamesRow> = many(
  "operations/read-names",
  `-- operations/read-names
select account_id, name from accounts where account_id = any($1::text[])`,
  (p) => [p.accountIds],
  (v) => ({ accountId: v[0], name: v[1] }) as never,
  "",
  5000,
);

export type SearchAccountRow = { kind: string; id: string; title: string; at: Date; hint: string };
/**
 * Finds keys, and members, of an account: first those whose name begins with a text, then those in
 * whose name each word of it is somewhere, or whose hint a text is. Of keys: among the newest
 * 20,000.
 * `small`: the text in small letters
 * `words`: its words, in small letters
 * `first`: the first characters of a secret; null: the text is no hint
 * `last`: its last characters; empty unless all of the first ones are known
 * `withMembers`: whether the caller may see them
 */
export const searchAccount: Many<{ accountId: string; small: string; words: readonly string[]; first: string | null; last: string; withMembers: boolean }, SearchAccountRow> = many(
  "operations/search-account",
  `-- operations/search-account
with own_keys as (
  select key_id, name, status, created_at
  from keys
  where account_id = $1
  order by created_at desc
  limit 20000
), hits as (
  (
    select 'key' as kind, k.key_id as id, k.name as title, k.created_at as at,
      case when k.status = 'active' then 0 else 4 end
        + case when starts_with(lower(k.name), $2) then 0 else 1 end as rank
    from own_keys k
    where not exists (
        select from unnest($3::text[]) word where position(word in lower(k.name)) = 0
      )
      or $4::text is not null and exists (
        select
        from key_secrets s
        where s.key_id = k.key_id and starts_with(s.shown, $4)
          and right(s.shown, length($5)) = $5
      )
    order by rank, lower(k.name), k.key_id
    limit 21
  )
  union all
  (
    select 'person', p.person_id, coalesce(nullif(p.name, ''), p.login, ''), m.joined_at,
      case when starts_with(lower(p.name), $2) or starts_with(p.login, $2)
        then 2 else 3 end as rank
    from members m
    join people p on p.person_id = m.person_id
    where $6 and m.account_id = $1 and not exists (
      select
      from unnest($3::text[]) word
      where position(word in lower(concat_ws(' ', p.name, p.login, p.email))) = 0
    )
    order by rank, lower(p.name), p.person_id
    limit 21
  )
)
select h.kind as kind, h.id as id, h.title as title, h.at as at,
  coalesce(s.shown, '') as hint
from hits h
left join lateral (
  select shown
  from key_secrets
  where h.kind = 'key' and key_id = h.id
  order by created_at desc
  limit 1
) s on true
order by h.rank, lower(h.title), h.id
limit 42`,
  (p) => [p.accountId, p.small, p.words, p.first, p.last, p.withMembers],
  (v) => ({ kind: v[0], id: v[1], title: v[2], at: v[3], hint: v[4] }) as never,
  "",
  5000,
);
