-- timeout_ms=5000

-- name: ChangeTags :run
-- Gives tags to keys of an account, and takes others away. The keys are locked.
-- :tags  keys of tags that they get, with these
-- :values
-- :removed  keys of other tags
with removed as (
  delete from key_tags where key_id = any(:key_ids::text[]) and tag = any(:removed::text[])
)
insert into key_tags (key_id, account_id, tag, value)
select k.key_id, k.account_id, given.tag, given.value
  from keys k
 cross join unnest(:tags::text[], :values::text[]) as given (tag, value)
 where k.account_id = :account_id and k.key_id = any(:key_ids)
on conflict (key_id, tag) do update set value = excluded.value;

-- name: ListTagKeys :many
-- The keys of tags that keys of an account have, in their order. Reads one entry of the index for
-- each, however many keys have it.
with recursive found as (
  (select tag from key_tags where account_id = :account_id order by tag limit 1)
  union all
  select (select t.tag from key_tags t
           where t.account_id = :account_id and t.tag > found.tag order by t.tag limit 1)
    from found
   where found.tag is not null
)
select tag as "tag!" from found where tag is not null limit :rows;

-- name: ListGroups :many
-- The keys of an account that match the filters of PageAccountKeys, by the value of a tag, in the
-- order of the values; those without it first, with an empty value.
-- :statuses?
-- :key_ids?
-- :prefix  what values begin with; empty: all
-- :after?  the value of the last group of the page before; null: from the first
with matching as not materialized (
  select k.key_id,
         case when b.day >= date_trunc('month', now() at time zone 'utc')::date
           then b.spent - b.month_base else 0 end as month_spent
    from keys k
    join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
   where k.account_id = :account_id
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
     and (:attention::text = ''
          or k.status = 'active' and (k.expires_at is null or k.expires_at > now())
             and case :attention
                   when 'unused' then k.created_at < now() - interval '90 days'
                     and coalesce(b.last_used_at < now() - interval '90 days', true)
                   when 'expires_soon' then k.expires_at < now() + interval '7 days'
                   else b.is_near_limit end)
), groups as (
  (
    select '' as value, count(*)::int4 as keys, sum(m.month_spent)::bigint as month_spent
      from matching m
     where :after::text is null and :prefix::text = ''
       and not exists (select 1 from key_tags t where t.key_id = m.key_id and t.tag = :tag)
    having count(*) > 0
  )
  union all
  (
    select t.value, count(*)::int4, sum(m.month_spent)::bigint
      from key_tags t
      join matching m using (key_id)
     where t.account_id = :account_id and t.tag = :tag and t.value > coalesce(:after, '')
       -- No value has the last character of Unicode.
       and t.value >= :prefix and t.value < :prefix || chr(1114111)
     group by t.value
     order by t.value
     limit :rows
  )
)
select value as "value!", keys as "keys!", month_spent as "month_spent!"
  from groups
 order by value
 limit :rows;
