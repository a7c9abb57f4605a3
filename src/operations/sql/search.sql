-- timeout_ms=5000

-- name: FollowIndexes :one
-- Makes the statements of a transaction follow indexes.
select set_config('enable_seqscan', 'off', true) as "enable_seqscan!";

-- name: SearchIds :many
-- Finds what has a text as its id, number, hash or address. A thing that is found in several ways
-- may have several rows.
-- :small  the text in small letters
-- :hash  the text in small letters, without `0x`
-- :digest  SHA-256 of the text
-- :account_id?  only what is of this account; null: of all
with payments as (
  select processor, external_id from payment_deposits where external_id = :text
  union
  select processor, external_id from chain_payments where external_id = :text
  union
  select processor, external_id
  from payment_transactions
  where tx = any(array[:hash, '0x' || :hash])
), hits as (
  select 'account' as kind, a.account_id as id, a.account_id, a.name as title, a.created_at as at
  from accounts a
  where a.account_id = :text
  union all
  select 'key', k.key_id, k.account_id, k.name, k.created_at
  from (
    select :text as key_id
    union
    select key_id from key_secrets where secret_id = :text
    union
    select key_id from key_secrets where digest = :digest
  ) f
  join keys k on k.key_id = f.key_id
  union all
  select 'management_key', m.management_key_id, m.account_id, m.name, m.created_at
  from (
    select :text as management_key_id
    union
    select management_key_id from management_secrets where digest = :digest
  ) f
  join management_keys m on m.management_key_id = f.management_key_id
  union all
  select 'person', p.person_id, '', coalesce(p.login, ''), p.created_at
  from people p
  where p.person_id = :text
  union all
  select 'order', o.order_id, o.account_id, '', o.created_at
  from (
    select :text as order_id
    union
    select order_id from payment_orders where external_id = :text
  ) f
  join payment_orders o on o.order_id = f.order_id
  union all
  select 'document', d.order_id, o.account_id, d.number, d.issued_at
  from payment_documents d
  join payment_orders o on o.order_id = d.order_id
  where d.number = upper(:text)
  union all
  select 'transfer', t.transfer_id, t.account_id, t.reason, t.created_at
  from transfers t
  where t.transfer_id = :text
  union all
  (
    select 'promotion', u.code_id, u.account_id, p.name, u.used_at
    from promotion_uses u
    join promotions p on p.code_id = u.code_id
    where u.code_id = :text and (:account_id::text is null or u.account_id = :account_id)
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
  where a.address = any(array[:text, :small])
  union all
  (
    select 'order', o.order_id, o.account_id, '', o.created_at
    from payment_orders o
    where lower(o.pay_to) = :small and o.pay_to <> '' and not exists (
        select from deposit_addresses a where a.address = any(array[:text, :small])
      )
      and (:account_id::text is null or o.account_id = :account_id)
    order by o.created_at desc
    limit 20
  )
)
select h.kind as "kind!", h.id as "id!", h.account_id as "account_id!",
  coalesce(a.name, '') as "account_name!", h.title as "title!", h.at as "at!"
from hits h
left join accounts a on a.account_id = h.account_id
where :account_id::text is null or h.account_id = :account_id
limit 100;

-- name: SearchPayments :many
-- Finds what arrived of an asset in an amount on a UTC day, newest first.
-- :coins  whole coins
-- :atoms  the amount in atoms, for each number of decimals that a coin may have
-- :day  2026-11-20
-- :account_id?  only what arrived for this account; null: for all
select case when d.order_id is null then 'payment' else 'order' end as "kind!",
  coalesce(d.order_id, d.external_id) as "id!", d.account_id as "account_id!",
  coalesce(a.name, '') as "account_name!", '' as "title!", d.first_seen_at as "at!"
from payment_deposits d
left join accounts a on a.account_id = d.account_id
where d.asset = :asset and d.atoms = any(:atoms::numeric[])
  and d.atoms = :coins::numeric * ('1e' || d.decimals)::numeric
  and d.first_seen_at >= :day::date::timestamp at time zone 'utc'
  and d.first_seen_at < (:day::date + 1)::timestamp at time zone 'utc'
  and (:account_id::text is null or d.account_id = :account_id)
order by d.first_seen_at desc
limit 21;

-- name: SearchHints :many
-- Finds keys by the first and the last characters of a secret.
-- :first  not empty
-- :last  empty unless all of the first ones are known
select 'key' as "kind!", k.key_id as "id!", k.account_id as "account_id!",
  a.name as "account_name!", k.name as "title!", k.created_at as "at!"
from (
  select key_id
  from key_secrets
  where shown collate "C" >= :first and shown collate "C" < :first || chr(1114111)
    and right(shown, length(:last)) = :last
  order by shown collate "C"
  -- More than a few are of a beginning that is too short to choose from.
  limit 10
) s
join keys k on k.key_id = s.key_id
join accounts a on a.account_id = k.account_id;

-- name: SearchNames :many
-- Finds accounts and people: first those whose name, login or address begins with a text, then
-- those with a name of which words do.
-- :small  the text in small letters
-- :words?  a tsquery; null: too short to look for words
with people_found as (
  (
    select person_id
    from people
    where login >= :small and login < :small || chr(1114111)
    order by login
    limit 21
  )
  union
  (
    select person_id
    from people
    where lower(email) collate "C" >= :small and lower(email) collate "C" < :small || chr(1114111)
    order by lower(email) collate "C"
    limit 21
  )
  union
  (
    select person_id
    from people
    where lower(name) collate "C" >= lower(:text) collate "C"
      and lower(name) collate "C" < (lower(:text) || chr(1114111)) collate "C"
      and login is not null
    order by lower(name) collate "C"
    limit 21
  )
), hits as (
  (
    select 1 as rank, 'account' as kind, a.account_id as id, a.name as title, a.created_at as at
    from accounts a
    where lower(a.name) collate "C" >= lower(:text) collate "C"
      and lower(a.name) collate "C" < (lower(:text) || chr(1114111)) collate "C"
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
    where :words::text is not null
      and array_to_tsvector(array_remove(string_to_array(lower(a.name), ' '), ''))
        @@ lower(:words::text)::tsquery
    limit 21
  )
  union all
  (
    select 2, 'person', p.person_id, coalesce(p.login, ''), p.created_at
    from people p
    where :words::text is not null
      and array_to_tsvector(array_remove(string_to_array(lower(p.name), ' '), ''))
        @@ lower(:words::text)::tsquery
    limit 21
  )
)
select h.kind as "kind!", h.id as "id!", case h.kind when 'account' then h.id else '' end
  as "account_id!", case h.kind when 'account' then h.title else '' end as "account_name!",
  h.title as "title!", h.at as "at!"
from hits h
order by h.rank, h.title
limit 100;

-- name: ReadNames :many
-- Reads the names of accounts.
select account_id, name from accounts where account_id = any(:account_ids::text[]);

-- name: SearchAccount :many
-- Finds keys, and members, of an account: first those whose name begins with a text, then those in
-- whose name each word of it is somewhere, or whose hint a text is. Of keys: among the newest
-- 20,000.
-- :small  the text in small letters
-- :words  its words, in small letters
-- :first?  the first characters of a secret; null: the text is no hint
-- :last  its last characters; empty unless all of the first ones are known
-- :with_members  whether the caller may see them
with own_keys as (
  select key_id, name, status, created_at
  from keys
  where account_id = :account_id
  order by created_at desc
  limit 20000
), hits as (
  (
    select 'key' as kind, k.key_id as id, k.name as title, k.created_at as at,
      case when k.status = 'active' then 0 else 4 end
        + case when starts_with(lower(k.name), :small) then 0 else 1 end as rank
    from own_keys k
    where not exists (
        select from unnest(:words::text[]) word where position(word in lower(k.name)) = 0
      )
      or :first::text is not null and exists (
        select
        from key_secrets s
        where s.key_id = k.key_id and starts_with(s.shown, :first)
          and right(s.shown, length(:last)) = :last
      )
    order by rank, lower(k.name), k.key_id
    limit 21
  )
  union all
  (
    select 'person', p.person_id, coalesce(nullif(p.name, ''), p.login, ''), m.joined_at,
      case when starts_with(lower(p.name), :small) or starts_with(p.login, :small)
        then 2 else 3 end as rank
    from members m
    join people p on p.person_id = m.person_id
    where :with_members and m.account_id = :account_id and not exists (
      select
      from unnest(:words::text[]) word
      where position(word in lower(concat_ws(' ', p.name, p.login, p.email))) = 0
    )
    order by rank, lower(p.name), p.person_id
    limit 21
  )
)
select h.kind as "kind!", h.id as "id!", h.title as "title!", h.at as "at!",
  coalesce(s.shown, '') as "hint!"
from hits h
left join lateral (
  select shown
  from key_secrets
  where h.kind = 'key' and key_id = h.id
  order by created_at desc
  limit 1
) s on true
order by h.rank, lower(h.title), h.id
limit 42;
