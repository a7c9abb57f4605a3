-- name: FindCharge :optional
-- Finds the charge of a finished request, with its price.
-- =family pools.family
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.facts, c.tags, c.made_by, c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.thinking as used_thinking,
  c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from charges c
join price_versions p using (price_version)
where c.account_id = :account_id and c.request_id = :request_id;

-- name: FindCharges :many
-- Finds the charges with a request id in all accounts, with their prices.
-- :months?  null: those of every month
-- =family pools.family
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.facts, c.tags, c.made_by, c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.thinking as used_thinking,
  c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from charges c
join price_versions p using (price_version)
where c.request_id = :request_id and (:months::date[] is null or c.month = any(:months::date[]))
order by c.admitted_at, c.account_id;

-- name: FindSettled :many
-- Finds the charges of these requests with their prices, in the order of their settlement.
-- :months  of the charges
-- =family pools.family
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.facts, c.tags, c.made_by, c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.thinking as used_thinking,
  c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from unnest(:account_ids::text[], :request_ids::text[], :months::date[])
  as d (account_id, request_id, month)
-- The offset makes the planner look up each request, rather than read whole months.
cross join lateral (
  select *
  from charges
  where account_id = d.account_id and request_id = d.request_id and month = d.month
  offset 0
) c
join price_versions p using (price_version)
order by c.settled_at, c.request_id;

-- name: FindAmounts :many
-- Finds the amounts of the charges that these requests have. A request without a row has no charge.
select c.account_id, c.request_id, c.amount as amount_micro
from unnest(:account_ids::text[], :request_ids::text[]) as asked (account_id, request_id)
join charges c on c.account_id = asked.account_id and c.request_id = asked.request_id;

-- name: FindHint :many
-- Finds the accounts that have a secret whose hint begins and ends like this.
-- :first  or empty
-- :last  or empty
select distinct k.account_id
from key_secrets s
join keys k using (key_id)
where starts_with(s.shown, :first) and right(s.shown, length(:last)) = :last
limit 1000;

-- name: ReadSettled :many
-- Reads which charges of some accounts were settled since ten seconds before a time, newest first,
-- and the time of this read. One row without a charge if there is none.
-- The ten seconds: charges do not become visible in the order of `settled_at`, which is the time at
-- which their transaction began. A settlement runs for eight seconds at most, by the time limits of
-- its statements, so a charge that this read cannot see yet is in the range of the next one.
-- :since?  the time of the read before; null: now
select statement_timestamp() as "read_at!", c.account_id as "account_id?",
  c.request_id as "request_id?", c.month as "month?"
from (select 1) as always
left join charges c
  on c.account_id = any(:account_ids::text[]) and c.amount >= 0
    and c.settled_at > coalesce(:since::timestamptz, statement_timestamp()) - interval '10 seconds'
    -- True for every charge. Without an end, a plan for any time would read whole months.
    and c.settled_at < statement_timestamp() + interval '1 minute'
order by c.settled_at desc, c.request_id desc
limit :rows;

-- name: ListCharges :many
-- Lists the charges of an account that match a filter, with their prices, newest first. Looks at a
-- limited number of charges. If it reaches the last of them, it returns that one too, matching or
-- not: the next page begins after it.
-- :least  amount
-- :model?  null: any
-- :outcomes?  null: any
-- :tags?  those that each charge has; null: any
-- :made_by?  null: any
-- :before  the time of admission of the last row of the page before
-- :before_id  the request of the same row
-- :from  the earliest time of admission
-- :looks  charges to look at
-- =family pools.family
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.facts, c.tags, c.made_by, c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.thinking as used_thinking,
  c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note,
  c.is_match as "is_match!", c.place = :looks as "is_last!"
from (
  select *
  from (
    select *,
      amount >= :least and (:model::text is null or model = :model)
        and (:outcomes::text[] is null or outcome = any(:outcomes))
        and (:tags::jsonb is null or coalesce(tags @> :tags, false))
        and (:made_by::text is null or coalesce(made_by = :made_by, false)) as is_match,
      row_number() over (order by admitted_at desc, request_id desc) as place
    from charges
    where account_id = :account_id and amount >= 0
      and (admitted_at, request_id) < (:before::timestamptz, :before_id)
      and admitted_at >= :from::timestamptz
      -- The month of a charge is that of its admission. This leaves out the other partitions.
      and month between date_trunc('month', :from at time zone 'utc')::date
        and date_trunc('month', :before at time zone 'utc')::date
    order by admitted_at desc, request_id desc
    limit :looks
  ) looked
  where is_match or place = :looks
  order by admitted_at desc, request_id desc
  limit :rows
) c
join price_versions p using (price_version)
order by c.admitted_at desc, c.request_id desc;

-- name: ListKeyCharges :many
-- Lists the charges of one key, as ListCharges does those of an account.
-- :model?
-- :outcomes?
-- :tags?
-- :made_by?
-- =family pools.family
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.facts, c.tags, c.made_by, c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.thinking as used_thinking,
  c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note,
  c.is_match as "is_match!", c.place = :looks as "is_last!"
from (
  select *
  from (
    select *,
      amount >= :least and (:model::text is null or model = :model)
        and (:outcomes::text[] is null or outcome = any(:outcomes))
        and (:tags::jsonb is null or coalesce(tags @> :tags, false))
        and (:made_by::text is null or coalesce(made_by = :made_by, false)) as is_match,
      row_number() over (order by admitted_at desc, request_id desc) as place
    from charges
    where account_id = :account_id and key_id = :key_id and amount >= 0
      and (admitted_at, request_id) < (:before::timestamptz, :before_id)
      and admitted_at >= :from::timestamptz
      -- The month of a charge is that of its admission. This leaves out the other partitions.
      and month between date_trunc('month', :from at time zone 'utc')::date
        and date_trunc('month', :before at time zone 'utc')::date
    order by admitted_at desc, request_id desc
    limit :looks
  ) looked
  where is_match or place = :looks
  order by admitted_at desc, request_id desc
  limit :rows
) c
join price_versions p using (price_version)
order by c.admitted_at desc, c.request_id desc;

-- name: ExportCharges :many
-- Reads the charges of an account for an export, with the names of their keys, oldest first.
-- :after  the time of admission of the last row of the page before
-- :after_id  the request of the same row
-- :to  exclusive
-- =family pools.family
select c.request_id as "request_id!", c.key_id as "key_id!", k.name as "key_name?",
  c.model as "model!", c."family" as "family!", upper(c.outcome) as "outcome!",
  upper(c.basis) as "basis!", c.granted_output as "granted_output!", c.hold as "hold!",
  c.amount as "amount!", c.overrun as "overrun!", c.price_version as "price_version!",
  c.tags as "tags?", c.made_by as "made_by?",
  to_char(c.admitted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "admitted_at!",
  to_char(c.settled_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "settled_at!",
  c.input as "input!", c.output as "output!", c.thinking as "thinking!",
  c.cache_write_5m as "cache_write_5m!", c.cache_write_1h as "cache_write_1h!",
  c.cache_read as "cache_read!", c.web_searches as "web_searches!"
from (
  select *
  from charges
  where account_id = :account_id and amount >= 0
    and (admitted_at, request_id) > (:after::timestamptz, :after_id)
    and admitted_at < :to::timestamptz
    -- The month of a charge is that of its admission. This leaves out the other partitions.
    and month between date_trunc('month', :after at time zone 'utc')::date
      and date_trunc('month', :to at time zone 'utc')::date
  order by admitted_at, request_id
  limit :rows
) c
left join keys k on k.key_id = c.key_id
order by c.admitted_at, c.request_id;

-- name: ExportKeyCharges :many
-- Reads the charges of one key for an export, as ExportCharges does those of an account.
-- =family pools.family
select c.request_id as "request_id!", c.key_id as "key_id!", k.name as "key_name?",
  c.model as "model!", c."family" as "family!", upper(c.outcome) as "outcome!",
  upper(c.basis) as "basis!", c.granted_output as "granted_output!", c.hold as "hold!",
  c.amount as "amount!", c.overrun as "overrun!", c.price_version as "price_version!",
  c.tags as "tags?", c.made_by as "made_by?",
  to_char(c.admitted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "admitted_at!",
  to_char(c.settled_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "settled_at!",
  c.input as "input!", c.output as "output!", c.thinking as "thinking!",
  c.cache_write_5m as "cache_write_5m!", c.cache_write_1h as "cache_write_1h!",
  c.cache_read as "cache_read!", c.web_searches as "web_searches!"
from (
  select *
  from charges
  where account_id = :account_id and key_id = :key_id and amount >= 0
    and (admitted_at, request_id) > (:after::timestamptz, :after_id)
    and admitted_at < :to::timestamptz
    -- The month of a charge is that of its admission. This leaves out the other partitions.
    and month between date_trunc('month', :after at time zone 'utc')::date
      and date_trunc('month', :to at time zone 'utc')::date
  order by admitted_at, request_id
  limit :rows
) c
left join keys k on k.key_id = c.key_id
order by c.admitted_at, c.request_id;
