-- name: WriteDay :run
-- Writes the sums of a UTC day of some accounts from their hours, over what is written already.
insert into usage_daily (account_id, day, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut,
  cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
  first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
  first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
  first_event_18, first_event_19, first_event_20, first_event_21)
select h.account_id, :day::date, key_id, model,
  sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
  sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
  sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
  sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
  sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint,
  sum(cache_saved)::bigint, sum(first_event_1)::bigint, sum(first_event_2)::bigint,
  sum(first_event_3)::bigint, sum(first_event_4)::bigint, sum(first_event_5)::bigint,
  sum(first_event_6)::bigint, sum(first_event_7)::bigint, sum(first_event_8)::bigint,
  sum(first_event_9)::bigint, sum(first_event_10)::bigint, sum(first_event_11)::bigint,
  sum(first_event_12)::bigint, sum(first_event_13)::bigint, sum(first_event_14)::bigint,
  sum(first_event_15)::bigint, sum(first_event_16)::bigint, sum(first_event_17)::bigint,
  sum(first_event_18)::bigint, sum(first_event_19)::bigint, sum(first_event_20)::bigint,
  sum(first_event_21)::bigint
from unnest(:account_ids::text[]) as a (account_id)
cross join lateral (
  select *
  from usage_hourly
  where account_id = a.account_id and hour >= :day::date::timestamp at time zone 'utc'
    and hour < (:day::date + 1)::timestamp at time zone 'utc'
  offset 0
) h
group by h.account_id, key_id, model
on conflict (account_id, day, key_id, model) do update
set (input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21) = row (
      excluded.input, excluded.output, excluded.thinking, excluded.cache_write_5m,
      excluded.cache_write_1h, excluded.cache_read, excluded.web_searches,
      excluded.amount, excluded.amount_input, excluded.amount_output, excluded.amount_cache,
      excluded.amount_thinking,
      excluded.requests, excluded.completed, excluded.failed, excluded.cut,
      excluded.cache_saved, excluded.first_event_1, excluded.first_event_2, excluded.first_event_3,
      excluded.first_event_4, excluded.first_event_5, excluded.first_event_6,
      excluded.first_event_7, excluded.first_event_8, excluded.first_event_9,
      excluded.first_event_10, excluded.first_event_11, excluded.first_event_12,
      excluded.first_event_13, excluded.first_event_14, excluded.first_event_15,
      excluded.first_event_16, excluded.first_event_17, excluded.first_event_18,
      excluded.first_event_19, excluded.first_event_20, excluded.first_event_21);

-- name: AddToDay :run
-- Adds the hours of a UTC day of some accounts to its sums. For a day whose hours were removed
-- before: these hours are new.
insert into usage_daily as u (account_id, day, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut,
  cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
  first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
  first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
  first_event_18, first_event_19, first_event_20, first_event_21)
select h.account_id, :day::date, key_id, model,
  sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
  sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
  sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
  sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
  sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint,
  sum(cache_saved)::bigint, sum(first_event_1)::bigint, sum(first_event_2)::bigint,
  sum(first_event_3)::bigint, sum(first_event_4)::bigint, sum(first_event_5)::bigint,
  sum(first_event_6)::bigint, sum(first_event_7)::bigint, sum(first_event_8)::bigint,
  sum(first_event_9)::bigint, sum(first_event_10)::bigint, sum(first_event_11)::bigint,
  sum(first_event_12)::bigint, sum(first_event_13)::bigint, sum(first_event_14)::bigint,
  sum(first_event_15)::bigint, sum(first_event_16)::bigint, sum(first_event_17)::bigint,
  sum(first_event_18)::bigint, sum(first_event_19)::bigint, sum(first_event_20)::bigint,
  sum(first_event_21)::bigint
from unnest(:account_ids::text[]) as a (account_id)
cross join lateral (
  select *
  from usage_hourly
  where account_id = a.account_id and hour >= :day::date::timestamp at time zone 'utc'
    and hour < (:day::date + 1)::timestamp at time zone 'utc'
  offset 0
) h
group by h.account_id, key_id, model
on conflict (account_id, day, key_id, model) do update
set (input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21) = row (
      u.input + excluded.input, u.output + excluded.output, u.thinking + excluded.thinking,
      u.cache_write_5m + excluded.cache_write_5m, u.cache_write_1h + excluded.cache_write_1h,
      u.cache_read + excluded.cache_read, u.web_searches + excluded.web_searches,
      u.amount + excluded.amount, u.amount_input + excluded.amount_input,
      u.amount_output + excluded.amount_output, u.amount_cache + excluded.amount_cache,
      u.amount_thinking + excluded.amount_thinking,
      u.requests + excluded.requests, u.completed + excluded.completed, u.failed + excluded.failed,
      u.cut + excluded.cut,
      u.cache_saved + excluded.cache_saved, u.first_event_1 + excluded.first_event_1,
      u.first_event_2 + excluded.first_event_2, u.first_event_3 + excluded.first_event_3,
      u.first_event_4 + excluded.first_event_4, u.first_event_5 + excluded.first_event_5,
      u.first_event_6 + excluded.first_event_6, u.first_event_7 + excluded.first_event_7,
      u.first_event_8 + excluded.first_event_8, u.first_event_9 + excluded.first_event_9,
      u.first_event_10 + excluded.first_event_10, u.first_event_11 + excluded.first_event_11,
      u.first_event_12 + excluded.first_event_12, u.first_event_13 + excluded.first_event_13,
      u.first_event_14 + excluded.first_event_14, u.first_event_15 + excluded.first_event_15,
      u.first_event_16 + excluded.first_event_16, u.first_event_17 + excluded.first_event_17,
      u.first_event_18 + excluded.first_event_18, u.first_event_19 + excluded.first_event_19,
      u.first_event_20 + excluded.first_event_20, u.first_event_21 + excluded.first_event_21);

-- name: WriteTags :run
-- Writes the sums of the tags of a UTC day of some accounts from their charges. No sum of the day
-- may be there. An account keeps the values of a day that cost most, of all its tags together; the
-- others of each tag are one value, `(other)`.
-- :kept  how many it keeps
insert into tags_daily (account_id, day, tag, value, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut)
select account_id, :day::date, tag, case when place <= :kept then value else '(other)' end,
  key_id, model,
  sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
  sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
  sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
  sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
  sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint
from (
  select *, dense_rank() over (partition by account_id order by value_amount desc, tag, value)
    as place
  from (
    select *, sum(amount) over (partition by account_id, tag, value) as value_amount
    from (
      select c.account_id, t.tag, t.value, c.key_id, c.model,
        sum(c.input) as input, sum(c.output) as output, sum(c.thinking) as thinking,
        sum(c.cache_write_5m) as cache_write_5m, sum(c.cache_write_1h) as cache_write_1h,
        sum(c.cache_read) as cache_read, sum(c.web_searches) as web_searches,
        sum(c.amount) as amount, sum(c.amount_input) as amount_input,
        sum(c.amount_output) as amount_output, sum(c.amount_cache) as amount_cache,
        sum(c.amount_thinking) as amount_thinking,
        sum(c.requests) as requests, sum(c.completed) as completed, sum(c.failed) as failed,
        sum(c.cut) as cut
      from unnest(:account_ids::text[]) as a (account_id)
      cross join lateral (
        select *
        from charge_sums
        where account_id = a.account_id and tags is not null
          and month = date_trunc('month', :day::date::timestamp)::date
          and admitted_at >= :day::date::timestamp at time zone 'utc'
          and admitted_at < (:day::date + 1)::timestamp at time zone 'utc'
        offset 0
      ) c
      cross join lateral jsonb_each_text(c.tags) as t (tag, value)
      group by c.account_id, t.tag, t.value, c.key_id, c.model
    ) summed
  ) weighed
) ranked
group by account_id, tag, 4, key_id, model;

-- name: CountHours :many
-- Counts the hours of a UTC day of the next accounts.
select a.account_id as "account_id!", h.rows as "rows!"
from (
  select account_id from accounts where account_id > :after order by account_id limit :accounts
) a
cross join lateral (
  select count(*)::integer as rows
  from usage_hourly
  where account_id = a.account_id and hour >= :day::date::timestamp at time zone 'utc'
    and hour < (:day::date + 1)::timestamp at time zone 'utc'
) h
order by a.account_id;

-- name: CountCharges :many
-- Counts the charges of a UTC day of the next accounts, each up to so many.
select a.account_id as "account_id!", c.rows as "rows!"
from (
  select account_id from accounts where account_id > :after order by account_id limit :accounts
) a
cross join lateral (
  select count(*)::integer as rows
  from (
    select
    from charges
    where account_id = a.account_id and amount >= 0
      and month = date_trunc('month', :day::date::timestamp)::date
      and admitted_at >= :day::date::timestamp at time zone 'utc'
      and admitted_at < (:day::date + 1)::timestamp at time zone 'utc'
    limit :most
  ) counted
) c
order by a.account_id;

-- name: FindTagPart :optional
-- Finds the last of the next charges of an account on a UTC day. No row: there are fewer left.
-- :at  after this one, as the request
select admitted_at::text as "at!", request_id as "request_id!"
from charges
where account_id = :account_id and amount >= 0
  and month = date_trunc('month', :day::date::timestamp)::date
  and (admitted_at, request_id) > (:at::text::timestamptz, :request_id)
  and admitted_at < (:day::date + 1)::timestamp at time zone 'utc'
order by admitted_at, request_id
offset :charges limit 1;

-- name: AddTagSums :run
-- Adds up the tags of charges of an account on a UTC day: of those after one, up to another.
insert into tag_sums (account_id, day, tag, value, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut)
select c.account_id, :day::date, t.tag, t.value, c.key_id, c.model,
  sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
  sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
  sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
  sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
  sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint
from charge_sums c
cross join lateral jsonb_each_text(c.tags) as t (tag, value)
where c.account_id = :account_id and c.tags is not null
  and c.month = date_trunc('month', :day::date::timestamp)::date
  and (c.admitted_at, c.request_id) > (:at::text::timestamptz, :request_id)
  and (c.admitted_at, c.request_id) <= (:last_at::text::timestamptz, :last_request_id)
group by c.account_id, t.tag, t.value, c.key_id, c.model
on conflict (account_id, day, tag, value, key_id, model) do update
set (
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  ) = row (
    tag_sums.input + excluded.input, tag_sums.output + excluded.output,
    tag_sums.thinking + excluded.thinking, tag_sums.cache_write_5m + excluded.cache_write_5m,
    tag_sums.cache_write_1h + excluded.cache_write_1h, tag_sums.cache_read + excluded.cache_read,
    tag_sums.web_searches + excluded.web_searches, tag_sums.amount + excluded.amount,
    tag_sums.amount_input + excluded.amount_input, tag_sums.amount_output + excluded.amount_output,
    tag_sums.amount_cache + excluded.amount_cache,
    tag_sums.amount_thinking + excluded.amount_thinking, tag_sums.requests + excluded.requests,
    tag_sums.completed + excluded.completed, tag_sums.failed + excluded.failed,
    tag_sums.cut + excluded.cut);

-- name: FindValuesEnd :optional
-- Finds the last value of the next sums of tags of an account on a UTC day. No row: there are fewer
-- left.
-- :tag  after this one, as the value
select tag as "tag!", value as "value!"
from tag_sums
where account_id = :account_id and day = :day::date and (tag, value) > (:tag, :value)
order by tag, value
offset :sums limit 1;

-- name: FindCostliest :many
-- Finds the values that cost most, of those after one and up to another.
select tag as "tag!", value as "value!", sum(amount)::bigint as "amount!"
from tag_sums
where account_id = :account_id and day = :day::date
  and (tag, value) > (:tag, :value) and (tag, value) <= (:last_tag, :last_value)
group by tag, value
order by sum(amount) desc, tag, value
limit :kept;

-- name: FoldValues :run
-- Adds the values that are not kept to the others of their tag, of those after one and up to
-- another.
-- :tags  of the kept values, as these
with folded as (
  delete from tag_sums s
  where account_id = :account_id and day = :day::date
    and (tag, value) > (:tag, :value) and (tag, value) <= (:last_tag, :last_value)
    and value <> '(other)'
    and not exists (
      select
      from unnest(:tags::text[], :values::text[]) as k (tag, value)
      where k.tag = s.tag and k.value = s.value)
  returning tag, key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
)
insert into tag_sums (account_id, day, tag, value, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut)
select :account_id, :day::date, tag, '(other)', key_id, model,
  sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
  sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
  sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
  sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
  sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint
from folded
group by tag, key_id, model
on conflict (account_id, day, tag, value, key_id, model) do update
set (
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  ) = row (
    tag_sums.input + excluded.input, tag_sums.output + excluded.output,
    tag_sums.thinking + excluded.thinking, tag_sums.cache_write_5m + excluded.cache_write_5m,
    tag_sums.cache_write_1h + excluded.cache_write_1h, tag_sums.cache_read + excluded.cache_read,
    tag_sums.web_searches + excluded.web_searches, tag_sums.amount + excluded.amount,
    tag_sums.amount_input + excluded.amount_input, tag_sums.amount_output + excluded.amount_output,
    tag_sums.amount_cache + excluded.amount_cache,
    tag_sums.amount_thinking + excluded.amount_thinking, tag_sums.requests + excluded.requests,
    tag_sums.completed + excluded.completed, tag_sums.failed + excluded.failed,
    tag_sums.cut + excluded.cut);

-- name: StoreTagSums :run
-- Writes the sums of the tags of an account on a UTC day as they were added up, of the values after
-- one and up to another. None of them may be there.
insert into tags_daily (account_id, day, tag, value, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut)
select account_id, day, tag, value, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut
from tag_sums
where account_id = :account_id and day = :day::date
  and (tag, value) > (:tag, :value) and (tag, value) <= (:last_tag, :last_value);

-- name: RemoveTagSums :run
-- Removes some of what was added up, of all accounts.
delete from tag_sums
where ctid = any (array (select ctid from tag_sums limit :sums));

-- name: FindFirstHours :one
-- Returns the first UTC day from a day on that has hours; null if there is none.
select (min(hour) at time zone 'utc')::date as "day?"
from usage_hourly
where hour >= :day::date::timestamp at time zone 'utc' and key_id >= '';

-- name: FindSpentLimits :many
-- Finds the limits of active keys, persons, management keys and pools of which a part is spent in
-- the UTC window of now, and whether a request was rejected for them within the last hours of this
-- day: what is left may be too little for any request. Of a rejection only the key is known, so it
-- counts for the limit with the least left of those that bind the key, unless one of these changed
-- since: processes may reject by the limits of before for some seconds. Of a limit of a key, also
-- from when to when it may be used.
-- :percents  for each of these accounts, the part
-- =family pools.family
-- =window 'day' | 'week' | 'month' | 'total'
with asked as (
  select account_id, percent
  from unnest(:account_ids::text[], :percents::integer[]) as a (account_id, percent)
), payers as (
  select account_id, "family", payer, day, spent, held, day_base, week_base, month_base, total_base,
    day_limit, week_limit, month_limit, total_limit
  from budgets b
  where account_id = any(:account_ids) and b.is_limited
  union all
  select account_id, "family", '', day, spent, held, day_base, week_base, month_base, total_base,
    day_limit, week_limit, month_limit, total_limit
  from pools p
  where account_id = any(:account_ids) and p.is_limited
), limits as (
  select p.account_id, p."family", p.payer, p.total_limit, w.name, w.most, w.base,
    greatest(w.since, w.starts) as since,
    case when w.since < w.starts then 0 else p.spent - w.base end as spent,
    w.most - case when w.since < w.starts then 0 else p.spent - w.base end - p.held as free
  from payers p
  cross join (select (now() at time zone 'utc')::date as today) t
  cross join lateral (
    values ('day', p.day, t.today, p.day_limit, p.day_base),
      ('week', date_trunc('week', p.day)::date, date_trunc('week', t.today)::date, p.week_limit,
        p.week_base),
      ('month', date_trunc('month', p.day)::date, date_trunc('month', t.today)::date, p.month_limit,
        p.month_base),
      ('total', null, null, p.total_limit, p.total_base)
  ) as w (name, since, starts, most, base)
  where w.most is not null
), refused as (
  select distinct on (k.key_id, e.reason) l.account_id, l."family", l.payer, l.name
  from errors_hourly e
  join keys k on k.account_id = e.account_id and k.key_id = e.key_id
  join limits l on l.account_id = k.account_id and l."family" = k."family"
    and l.payer in (k.key_id, k.managed_by, '')
    and (l.payer = k.key_id and l.name = 'month') = (e.reason = 'monthly_cap_reached')
  where e.account_id = any(:account_ids) and e.reason in ('monthly_cap_reached', 'budget_reached')
    and e.hour >= date_trunc('hour', now(), 'UTC') - interval '1 hour'
    and e.hour >= date_trunc('day', now(), 'UTC')
    and not exists (
      select
      from limit_changes c
      where c.account_id = k.account_id and c."family" = k."family"
        and c.payer in (k.key_id, k.managed_by, '')
        and c.changed_at > e.last_at - interval '5 seconds'
    )
  order by k.key_id, e.reason, l.free, l.payer, l.name
)
select l.account_id as "account_id!", l."family" as "family!", l.payer as "payer!",
  coalesce(k.name, m.name) as "name?", l.name as "window!", l.since as "since?",
  l.base as "base!", l.most as "limit_micro!", l.spent as "spent_micro!",
  c.passed as "passed?", l.total_limit as "total_limit?", k.created_at as "key_created_at?",
  k.expires_at as "key_expires_at?",
  exists (
    select 1
    from refused r
    where r.account_id = l.account_id and r."family" = l."family" and r.payer = l.payer
      and r.name = l.name
  ) as "is_refused!"
from limits l
join asked a using (account_id)
left join keys k on k.key_id = l.payer
left join management_keys m
  on l.payer like 'mgmt:%' and m.management_key_id = substr(l.payer, 6)
left join limit_changes c
  on c.account_id = l.account_id and c."family" = l."family" and c.payer = l.payer
    and c."window" = l.name
where (k.status = 'active' or l.payer = '' or strpos(l.payer, ':') > 0) and l.most > 0
  and l.spent * 100::numeric >= l.most * a.percent::numeric
order by l.account_id, l."family", l.payer, l.since;

-- name: ReadArchivedMonths :many
-- Reads the months in which an account was charged and whose charges were removed after an export,
-- oldest first.
-- :account_id?  null: any
-- :key_id?  null: any
select a.month
from closed_months c
join month_archives a on a.month = c.month
where a.dropped_at is not null and (:account_id::text is null or c.account_id = :account_id)
  and (:key_id::text is null or c.key_id = :key_id)
group by a.month
order by a.month;

-- name: ReadDailySpend :many
-- Sums what was charged to the pools of accounts on the last full UTC days, with the number of days
-- for which it stands: all of them, or those since the first use. As ReadSpending does for one
-- account. No row: the pool was not used.
-- :days  how many full days
select s.account_id, s."family", s.amount as "amount!",
  case when exists (
    select 1
    from usage_hourly u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = s.account_id and k."family" = s."family"
      and u.hour < date_trunc('day', now(), 'UTC') - :days::integer * interval '1 day'
      and u.hour >= (select closed_to from usage_progress)::timestamp at time zone 'utc'
  ) or exists (
    select 1
    from usage_daily u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = s.account_id and k."family" = s."family"
      and u.day < (now() at time zone 'utc')::date - :days::integer
  ) then :days::integer else (now() at time zone 'utc')::date - s.first_day end as "days!"
from (
  select u.account_id, k."family", (min(u.hour) at time zone 'utc')::date as first_day,
    sum(u.amount)::bigint as amount
  from usage_hourly u
  join keys k on k.account_id = u.account_id and k.key_id = u.key_id
  where u.account_id = any(:account_ids::text[])
    and u.hour < date_trunc('day', now(), 'UTC')
    and u.hour >= date_trunc('day', now(), 'UTC') - :days::integer * interval '1 day'
  group by u.account_id, k."family"
) s;

-- name: SumAccounts :many
-- Sums what accounts were charged since a UTC day: of days that are closed from the days, of the
-- others from their hours.
select account_id as "account_id!", sum(amount)::bigint as "amount!"
from (
  select u.account_id, u.amount
  from usage_daily u
  cross join usage_progress g
  where u.account_id = any(:account_ids::text[]) and u.day >= :since::date and u.day < g.closed_to
  union all
  select u.account_id, u.amount
  from usage_hourly u
  cross join usage_progress g
  where u.account_id = any(:account_ids::text[])
    and u.hour >= greatest(:since::date, g.closed_to)::timestamp at time zone 'utc'
) used
group by account_id;

-- name: SumUsage :one
-- Sums roll-ups as QueryUsage does, over all rows of all pages.
-- :key_ids?  null: all
-- :models?  null: all
with used as (
  select key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_hourly
  where account_id = :account_id and hour >= :hours_from and hour < :hours_to
  union all
  select key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_daily
  where account_id = :account_id and day >= :days_from::date and day < :days_to::date
  union all
  select key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_hourly
  where account_id = :account_id and hour >= :later_from and hour < :later_to
)
select
  coalesce(sum(input), 0)::bigint as "input!", coalesce(sum(output), 0)::bigint as "output!",
  coalesce(sum(thinking), 0)::bigint as "thinking!",
  coalesce(sum(cache_write_5m), 0)::bigint as "cache_write_5m!",
  coalesce(sum(cache_write_1h), 0)::bigint as "cache_write_1h!",
  coalesce(sum(cache_read), 0)::bigint as "cache_read!",
  coalesce(sum(web_searches), 0)::bigint as "web_searches!",
  coalesce(sum(amount), 0)::bigint as "amount!",
  coalesce(sum(amount_input), 0)::bigint as "amount_input!",
  coalesce(sum(amount_output), 0)::bigint as "amount_output!",
  coalesce(sum(amount_cache), 0)::bigint as "amount_cache!",
  coalesce(sum(amount_thinking), 0)::bigint as "amount_thinking!",
  coalesce(sum(requests), 0)::bigint as "requests!",
  coalesce(sum(completed), 0)::bigint as "completed!",
  coalesce(sum(failed), 0)::bigint as "failed!", coalesce(sum(cut), 0)::bigint as "cut!",
  coalesce(sum(cache_saved), 0)::bigint as "cache_saved!",
  coalesce(sum(first_event_1), 0)::bigint as "first_event_1!",
  coalesce(sum(first_event_2), 0)::bigint as "first_event_2!",
  coalesce(sum(first_event_3), 0)::bigint as "first_event_3!",
  coalesce(sum(first_event_4), 0)::bigint as "first_event_4!",
  coalesce(sum(first_event_5), 0)::bigint as "first_event_5!",
  coalesce(sum(first_event_6), 0)::bigint as "first_event_6!",
  coalesce(sum(first_event_7), 0)::bigint as "first_event_7!",
  coalesce(sum(first_event_8), 0)::bigint as "first_event_8!",
  coalesce(sum(first_event_9), 0)::bigint as "first_event_9!",
  coalesce(sum(first_event_10), 0)::bigint as "first_event_10!",
  coalesce(sum(first_event_11), 0)::bigint as "first_event_11!",
  coalesce(sum(first_event_12), 0)::bigint as "first_event_12!",
  coalesce(sum(first_event_13), 0)::bigint as "first_event_13!",
  coalesce(sum(first_event_14), 0)::bigint as "first_event_14!",
  coalesce(sum(first_event_15), 0)::bigint as "first_event_15!",
  coalesce(sum(first_event_16), 0)::bigint as "first_event_16!",
  coalesce(sum(first_event_17), 0)::bigint as "first_event_17!",
  coalesce(sum(first_event_18), 0)::bigint as "first_event_18!",
  coalesce(sum(first_event_19), 0)::bigint as "first_event_19!",
  coalesce(sum(first_event_20), 0)::bigint as "first_event_20!",
  coalesce(sum(first_event_21), 0)::bigint as "first_event_21!"
from used
where (:key_ids::text[] is null or key_id = any(:key_ids))
  and (:models::text[] is null or model = any(:models));

-- name: ListUsage :many
-- Lists roll-ups by UTC day, key and model, one page of rows, with the family and the manager
-- of the key if asked.
-- Answers as QueryUsage grouped so, without reading more rows than the page has: each row is one of
-- a table already.
-- :key_ids?  null: all
-- :models?  null: all
-- :after_day?  of the last row of the page before; null: from the first
-- :after_key_id?  of the same row
-- :after_model?  of the same row
-- =family 'v1' | 'v2' | ''
select page.day as "day!", page.key_id as "key_id!", page.model as "model!",
  case when :by_family then coalesce(k."family", '') else '' end as "family!",
  case when :by_member then coalesce(k.managed_by, '') else '' end as "member!",
  input as "input!", output as "output!", thinking as "thinking!",
  cache_write_5m as "cache_write_5m!", cache_write_1h as "cache_write_1h!",
  cache_read as "cache_read!", web_searches as "web_searches!",
  amount as "amount!", amount_input as "amount_input!", amount_output as "amount_output!",
  amount_cache as "amount_cache!", amount_thinking as "amount_thinking!",
  requests as "requests!", completed as "completed!", failed as "failed!", cut as "cut!",
  cache_saved as "cache_saved!", first_event_1 as "first_event_1!",
  first_event_2 as "first_event_2!", first_event_3 as "first_event_3!",
  first_event_4 as "first_event_4!", first_event_5 as "first_event_5!",
  first_event_6 as "first_event_6!", first_event_7 as "first_event_7!",
  first_event_8 as "first_event_8!", first_event_9 as "first_event_9!",
  first_event_10 as "first_event_10!", first_event_11 as "first_event_11!",
  first_event_12 as "first_event_12!", first_event_13 as "first_event_13!",
  first_event_14 as "first_event_14!", first_event_15 as "first_event_15!",
  first_event_16 as "first_event_16!", first_event_17 as "first_event_17!",
  first_event_18 as "first_event_18!", first_event_19 as "first_event_19!",
  first_event_20 as "first_event_20!", first_event_21 as "first_event_21!"
from (
  select *
  from (
    (
      select (hour at time zone 'utc')::date as day, key_id, model,
        sum(input)::bigint as input, sum(output)::bigint as output,
        sum(thinking)::bigint as thinking, sum(cache_write_5m)::bigint as cache_write_5m,
        sum(cache_write_1h)::bigint as cache_write_1h, sum(cache_read)::bigint as cache_read,
        sum(web_searches)::bigint as web_searches,
        sum(amount)::bigint as amount, sum(amount_input)::bigint as amount_input,
        sum(amount_output)::bigint as amount_output, sum(amount_cache)::bigint as amount_cache,
        sum(amount_thinking)::bigint as amount_thinking,
        sum(requests)::bigint as requests, sum(completed)::bigint as completed,
        sum(failed)::bigint as failed, sum(cut)::bigint as cut,
        sum(cache_saved)::bigint as cache_saved, sum(first_event_1)::bigint as first_event_1,
        sum(first_event_2)::bigint as first_event_2, sum(first_event_3)::bigint as first_event_3,
        sum(first_event_4)::bigint as first_event_4, sum(first_event_5)::bigint as first_event_5,
        sum(first_event_6)::bigint as first_event_6, sum(first_event_7)::bigint as first_event_7,
        sum(first_event_8)::bigint as first_event_8, sum(first_event_9)::bigint as first_event_9,
        sum(first_event_10)::bigint as first_event_10,
        sum(first_event_11)::bigint as first_event_11,
        sum(first_event_12)::bigint as first_event_12,
        sum(first_event_13)::bigint as first_event_13,
        sum(first_event_14)::bigint as first_event_14,
        sum(first_event_15)::bigint as first_event_15,
        sum(first_event_16)::bigint as first_event_16,
        sum(first_event_17)::bigint as first_event_17,
        sum(first_event_18)::bigint as first_event_18,
        sum(first_event_19)::bigint as first_event_19,
        sum(first_event_20)::bigint as first_event_20, sum(first_event_21)::bigint as first_event_21
      from usage_hourly
      where account_id = :account_id and hour >= :hours_from and hour < :hours_to
      group by 1, 2, 3
      order by 1, 2, 3
    )
    union all
    (
      select day, key_id, model,
        input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
        amount, amount_input, amount_output, amount_cache, amount_thinking,
        requests, completed, failed, cut,
        cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
        first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
        first_event_12, first_event_13, first_event_14, first_event_15, first_event_16,
        first_event_17, first_event_18, first_event_19, first_event_20, first_event_21
      from usage_daily
      where account_id = :account_id and day >= :days_from::date and day < :days_to::date
      order by day, key_id, model
    )
    union all
    (
      select (hour at time zone 'utc')::date, key_id, model,
        sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
        sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
        sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
        sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
        sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint,
        sum(cache_saved)::bigint, sum(first_event_1)::bigint, sum(first_event_2)::bigint,
        sum(first_event_3)::bigint, sum(first_event_4)::bigint, sum(first_event_5)::bigint,
        sum(first_event_6)::bigint, sum(first_event_7)::bigint, sum(first_event_8)::bigint,
        sum(first_event_9)::bigint, sum(first_event_10)::bigint, sum(first_event_11)::bigint,
        sum(first_event_12)::bigint, sum(first_event_13)::bigint, sum(first_event_14)::bigint,
        sum(first_event_15)::bigint, sum(first_event_16)::bigint, sum(first_event_17)::bigint,
        sum(first_event_18)::bigint, sum(first_event_19)::bigint, sum(first_event_20)::bigint,
        sum(first_event_21)::bigint
      from usage_hourly
      where account_id = :account_id and hour >= :later_from and hour < :later_to
      group by 1, 2, 3
      order by 1, 2, 3
    )
  ) rows
  where (:key_ids::text[] is null or key_id = any(:key_ids))
    and (:models::text[] is null or model = any(:models))
    and (:after_day::date is null
      or (day, key_id, model) > (:after_day, :after_key_id, :after_model))
  order by day, key_id, model
  limit :rows
) page
left join keys k
  on (:by_family or :by_member) and k.account_id = :account_id and k.key_id = page.key_id
order by page.day, page.key_id, page.model;

-- name: QueryUsage :many
-- Sums roll-ups by time, key, model, family and manager of the key: one page of rows. Whole days
-- that are closed are read from the days, the rest from the hours: those from `hours_from` to
-- `hours_to` before the days, and those from `later_from` to `later_to` after them. Each end is
-- exclusive.
-- :bucket  hour, day, month or none
-- :key_ids?  null: all
-- :models?  null: all
-- :after_period?  of the last row of the page before; null: from the first
-- :after_key_id?  of the same row
-- :after_model?  of the same row
-- :after_family?  of the same row
-- :after_member?  of the same row
-- =family 'v1' | 'v2' | ''
with used as (
  select key_id, model, hour at time zone 'utc' as at,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_hourly
  where account_id = :account_id and hour >= :hours_from and hour < :hours_to
  union all
  select key_id, model, day::timestamp,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_daily
  where account_id = :account_id and day >= :days_from::date and day < :days_to::date
  union all
  select key_id, model, hour at time zone 'utc',
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_hourly
  where account_id = :account_id and hour >= :later_from and hour < :later_to
)
select named.period at time zone 'utc' as "period!", named.key_id as "key_id!",
  named.model as "model!", named."family" as "family!", named.member as "member!",
  sum(input)::bigint as "input!", sum(output)::bigint as "output!",
  sum(thinking)::bigint as "thinking!", sum(cache_write_5m)::bigint as "cache_write_5m!",
  sum(cache_write_1h)::bigint as "cache_write_1h!", sum(cache_read)::bigint as "cache_read!",
  sum(web_searches)::bigint as "web_searches!",
  sum(amount)::bigint as "amount!", sum(amount_input)::bigint as "amount_input!",
  sum(amount_output)::bigint as "amount_output!", sum(amount_cache)::bigint as "amount_cache!",
  sum(amount_thinking)::bigint as "amount_thinking!",
  sum(requests)::bigint as "requests!", sum(completed)::bigint as "completed!",
  sum(failed)::bigint as "failed!", sum(cut)::bigint as "cut!",
  sum(cache_saved)::bigint as "cache_saved!", sum(first_event_1)::bigint as "first_event_1!",
  sum(first_event_2)::bigint as "first_event_2!", sum(first_event_3)::bigint as "first_event_3!",
  sum(first_event_4)::bigint as "first_event_4!", sum(first_event_5)::bigint as "first_event_5!",
  sum(first_event_6)::bigint as "first_event_6!", sum(first_event_7)::bigint as "first_event_7!",
  sum(first_event_8)::bigint as "first_event_8!", sum(first_event_9)::bigint as "first_event_9!",
  sum(first_event_10)::bigint as "first_event_10!",
  sum(first_event_11)::bigint as "first_event_11!",
  sum(first_event_12)::bigint as "first_event_12!",
  sum(first_event_13)::bigint as "first_event_13!",
  sum(first_event_14)::bigint as "first_event_14!",
  sum(first_event_15)::bigint as "first_event_15!",
  sum(first_event_16)::bigint as "first_event_16!",
  sum(first_event_17)::bigint as "first_event_17!",
  sum(first_event_18)::bigint as "first_event_18!",
  sum(first_event_19)::bigint as "first_event_19!",
  sum(first_event_20)::bigint as "first_event_20!", sum(first_event_21)::bigint as "first_event_21!"
from used
left join keys k
  on (:by_family or :by_member) and k.account_id = :account_id and k.key_id = used.key_id
cross join lateral (
  select
    case :bucket::text
      when 'none' then :hours_from::timestamptz at time zone 'utc'
      else date_trunc(:bucket, used.at)
    end as period,
    case when :by_key then used.key_id else '' end as key_id,
    case when :by_model then used.model else '' end as model,
    case when :by_family then coalesce(k."family", '') else '' end as "family",
    case when :by_member then coalesce(k.managed_by, '') else '' end as member
) named
where (:key_ids::text[] is null or used.key_id = any(:key_ids))
  and (:models::text[] is null or used.model = any(:models))
  and (:after_period::timestamptz is null
    or (named.period, named.key_id, named.model, named."family", named.member)
      > (:after_period at time zone 'utc', :after_key_id, :after_model, :after_family,
        :after_member))
group by named.period, named.key_id, named.model, named."family", named.member
order by named.period, named.key_id, named.model, named."family", named.member
limit :rows;

-- name: QueryTags :many
-- Sums charges by the value of one tag, and by time, key, model and family: one page of rows. Whole
-- days whose tags are written are read from there, the rest from the charges. Without a value, the
-- requests without the tag are summed too, as all requests but the others. First events are not
-- kept by tag. The parameters are those of QueryUsage.
-- :value?  of the tag; null: all
-- :key_ids?
-- :models?
-- :after_period?
-- :after_key_id?
-- :after_model?
-- :after_family?
-- :after_member?
-- :after_value?
-- =family 'v1' | 'v2' | ''
with tagged as (
  -- In pieces as large as the rows of the answer: there may be a million charges.
  select key_id, model,
    date_trunc(replace(:bucket::text, 'none', 'month'), admitted_at at time zone 'utc') as at,
    tags ->> :tag::text as value,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount, sum(amount_input)::bigint as amount_input,
    sum(amount_output)::bigint as amount_output, sum(amount_cache)::bigint as amount_cache,
    sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut
  from charge_sums
  where account_id = :account_id and tags ? :tag
    and admitted_at >= :hours_from and admitted_at < :hours_to
    -- The month of a charge is that of its admission. This leaves out the other partitions.
    and month between date_trunc('month', :hours_from::timestamptz at time zone 'utc')::date
      and date_trunc('month', :hours_to::timestamptz at time zone 'utc')::date
  group by 1, 2, 3, 4
  union all
  select key_id, model, day::timestamp, value,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  from tags_daily
  where account_id = :account_id and tag = :tag and day >= :days_from::date and day < :days_to::date
  union all
  select key_id, model,
    date_trunc(replace(:bucket::text, 'none', 'month'), admitted_at at time zone 'utc'),
    tags ->> :tag::text,
    sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
    sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
    sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
    sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
    sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint
  from charge_sums
  where account_id = :account_id and tags ? :tag
    and admitted_at >= :later_from and admitted_at < :later_to
    and month between date_trunc('month', :later_from::timestamptz at time zone 'utc')::date
      and date_trunc('month', :later_to::timestamptz at time zone 'utc')::date
  group by 1, 2, 3, 4
), used as (
  select *
  from tagged
  where :value::text is null or value = :value
  union all
  select key_id, model, at, '',
    -input, -output, -thinking, -cache_write_5m, -cache_write_1h, -cache_read, -web_searches,
    -amount, -amount_input, -amount_output, -amount_cache, -amount_thinking,
    -requests, -completed, -failed, -cut
  from tagged
  where :value is null
  union all
  select key_id, model, hour at time zone 'utc', '',
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  from usage_hourly
  where :value is null and account_id = :account_id and hour >= :hours_from and hour < :hours_to
  union all
  select key_id, model, day::timestamp, '',
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  from usage_daily
  where :value is null and account_id = :account_id
    and day >= :days_from::date and day < :days_to::date
  union all
  select key_id, model, hour at time zone 'utc', '',
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  from usage_hourly
  where :value is null and account_id = :account_id and hour >= :later_from and hour < :later_to
)
select named.period at time zone 'utc' as "period!", named.key_id as "key_id!",
  named.model as "model!", named."family" as "family!", named.member as "member!",
  used.value as "value!",
  sum(input)::bigint as "input!", sum(output)::bigint as "output!",
  sum(thinking)::bigint as "thinking!", sum(cache_write_5m)::bigint as "cache_write_5m!",
  sum(cache_write_1h)::bigint as "cache_write_1h!", sum(cache_read)::bigint as "cache_read!",
  sum(web_searches)::bigint as "web_searches!",
  sum(amount)::bigint as "amount!", sum(amount_input)::bigint as "amount_input!",
  sum(amount_output)::bigint as "amount_output!", sum(amount_cache)::bigint as "amount_cache!",
  sum(amount_thinking)::bigint as "amount_thinking!",
  sum(requests)::bigint as "requests!", sum(completed)::bigint as "completed!",
  sum(failed)::bigint as "failed!", sum(cut)::bigint as "cut!"
from used
left join keys k
  on (:by_family or :by_member) and k.account_id = :account_id and k.key_id = used.key_id
cross join lateral (
  select
    case :bucket::text
      when 'none' then :hours_from::timestamptz at time zone 'utc'
      else date_trunc(:bucket, used.at)
    end as period,
    case when :by_key then used.key_id else '' end as key_id,
    case when :by_model then used.model else '' end as model,
    case when :by_family then coalesce(k."family", '') else '' end as "family",
    case when :by_member then coalesce(k.managed_by, '') else '' end as member
) named
where (:key_ids::text[] is null or used.key_id = any(:key_ids))
  and (:models::text[] is null or used.model = any(:models))
  and (:after_period::timestamptz is null
    or (named.period, named.key_id, named.model, named."family", named.member, used.value)
      > (:after_period at time zone 'utc', :after_key_id, :after_model, :after_family,
        :after_member, :after_value))
group by named.period, named.key_id, named.model, named."family", named.member, used.value
having sum(requests) > 0
order by named.period, named.key_id, named.model, named."family", named.member, used.value
limit :rows;

-- name: LockUsageProgress :one
-- Locks the progress of the days, so that one process closes them, and returns it with the UTC day.
select closed_to, hours_from, removed_to, tags_to, (now() at time zone 'utc')::date as "today!"
from usage_progress
for update;

-- name: CompareDay :one
-- Counts the keys and models of some accounts whose sums of a UTC day differ from those of their
-- hours.
select count(*)::integer as "differences!"
from (
  select account_id, key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_daily
  where account_id = any(:account_ids::text[]) and day = :day::date
) d
full join (
  select h.account_id, key_id, model,
    sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
    sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
    sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
    sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
    sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint,
    sum(cache_saved)::bigint, sum(first_event_1)::bigint, sum(first_event_2)::bigint,
    sum(first_event_3)::bigint, sum(first_event_4)::bigint, sum(first_event_5)::bigint,
    sum(first_event_6)::bigint, sum(first_event_7)::bigint, sum(first_event_8)::bigint,
    sum(first_event_9)::bigint, sum(first_event_10)::bigint, sum(first_event_11)::bigint,
    sum(first_event_12)::bigint, sum(first_event_13)::bigint, sum(first_event_14)::bigint,
    sum(first_event_15)::bigint, sum(first_event_16)::bigint, sum(first_event_17)::bigint,
    sum(first_event_18)::bigint, sum(first_event_19)::bigint, sum(first_event_20)::bigint,
    sum(first_event_21)::bigint
  from unnest(:account_ids::text[]) as a (account_id)
  cross join lateral (
    select *
    from usage_hourly
    where account_id = a.account_id and hour >= :day::date::timestamp at time zone 'utc'
      and hour < (:day::date + 1)::timestamp at time zone 'utc'
    offset 0
  ) h
  group by h.account_id, key_id, model
) h using (account_id, key_id, model)
where d is distinct from h;

-- name: MoveUsageProgress :run
-- Records how far the days are. The caller has locked the row.
update usage_progress
set closed_to = :closed_to::date, hours_from = :hours_from::date, removed_to = :removed_to;

-- name: MoveTagsProgress :run
-- Records that the sums of the tags of the days before one are written.
update usage_progress set tags_to = :tags_to::date;

-- name: RemoveHours :run
-- Removes the hours of a UTC day of some accounts.
delete from usage_hourly h
using unnest(:account_ids::text[]) as a (account_id)
where h.account_id = a.account_id and h.hour >= :day::date::timestamp at time zone 'utc'
  and h.hour < (:day::date + 1)::timestamp at time zone 'utc';

-- name: RemoveTags :run
-- Removes the sums of tags of a UTC day of some accounts, which are written again.
delete from tags_daily t
using unnest(:account_ids::text[]) as a (account_id)
where t.day = :day::date and t.account_id = a.account_id;

-- name: CountOutcomes :many
-- Counts the requests of an account that did not complete, by outcome, the most frequent first.
-- Sums do not have them. Reads these charges alone, through `charges_not_completed`.
-- :from  the first time of admission
-- :to  exclusive
-- :key_ids?  null: all
-- :models?  null: all
-- :tags?  the tags that each charge has; null: any
select outcome, count(*)::bigint as "requests!"
from charges
where account_id = :account_id and amount >= 0 and outcome <> 'completed'
  and admitted_at >= :from::timestamptz and admitted_at < :to::timestamptz
  -- The month of a charge is that of its admission. This leaves out the other partitions.
  and month between date_trunc('month', :from at time zone 'utc')::date
    and date_trunc('month', :to at time zone 'utc')::date
  and (:key_ids::text[] is null or key_id = any(:key_ids))
  and (:models::text[] is null or model = any(:models))
  and (:tags::jsonb is null or coalesce(tags @> :tags, false))
group by outcome
order by 2 desc, 1;
