-- name: InsertVerification :run
-- Stores what a check of the ledger found.
-- :violations  the first of them
insert into verifications
  (verification_id, started_at, ended_at, started_by, violation_count, violations)
values (:verification_id, :started_at, :ended_at, :started_by, :violation_count, :violations);

-- name: ReadVerification :optional
-- Reads the last check of the ledger, and the end of the last one that found nothing. No row: it
-- was never checked.
select v.verification_id, v.started_at, v.ended_at, v.started_by, v.violation_count, v.violations,
  (select max(c.ended_at) from verifications c where c.violation_count = 0) as "clean_at?"
from verifications v
order by v.verification_id desc
limit 1;

-- The ledger is verified by slices, each in a snapshot of its own, while it moves: a snapshot of
-- an hour would keep the server from removing dead rows, and slow down the accounts that are busy.
-- So a check may only compare rows that one transaction always writes together, or that nobody
-- changes any more, and each check below has both of its sides in one statement. The balance of a
-- pool is never compared with all charges of its account, which no short snapshot can read, but
-- step by step:
--
--   transfers - spent = balance              one snapshot of the account (VerifyAccounts)
--   spent of keys = spent of their pool      the same
--   holds = held and running, by pool, key and manager    the same
--   hours (or days, where the hours are removed; sums of closed months) = spent of keys   the same
--   days = hours                             the same
--   charges = hours                          one snapshot of the hours (VerifyCharges)
--   charges = days without hours, tags       one snapshot of the day (VerifyDays)
--
--   sales of months and of all accounts = sales of days   one snapshot of them (VerifySalesMonth)
--   sales of days = closed days     one snapshot of the days (VerifySales), but for days with
--     charges that the sums of sales do not have yet
--
-- Every settlement writes the charge, its hour, its budgets and its balance in one transaction. So
-- each step holds in every snapshot, and where each step holds, the balance is that of the
-- charges.
--
-- What a person or a management key has spent is compared with the charges that name them: those of
-- open months are added up in the order of their settlement (SumManaged), which nothing joins any
-- more but at its end, and that end is read with what they have spent (VerifyManagers).

-- name: ListOpenMonths :many
-- Lists the months that are not closed and have charges, hours or tags, in their order.
with open_from as (
  -- Months are closed in their order.
  select coalesce(max(month) + interval '1 month', '-infinity')::date as day
  from month_closings
), bounds (month) as (
  select to_date(right(c.relname, 7), 'YYYY_MM')
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'charges'::regclass
  union all
  select date_trunc('month', min(hour), 'UTC')::date from usage_hourly where key_id >= ''
  union all
  select date_trunc('month', max(hour), 'UTC')::date from usage_hourly where key_id >= ''
)
select month::date as "month!"
from generate_series(
  (select greatest(min(month), (select day from open_from)) from bounds)::timestamp,
  (select max(month) from bounds)::timestamp,
  interval '1 month') as series (month)
where exists (select from charges c where c.month = series.month::date)
  or exists (
    select from usage_hourly
    where hour >= series.month at time zone 'utc' and key_id >= ''
      and hour < (series.month + interval '1 month') at time zone 'utc')
  or exists (
    select from tags_daily
    where day >= series.month::date and day < (series.month + interval '1 month')::date)
order by 1;

-- name: FindAccountsEnd :one
-- Finds the last account of a slice of so many accounts, or of about so many rows. Null: all that
-- are left.
select least(
  (select account_id from accounts where account_id > :after
   order by account_id offset :accounts limit 1),
  (select account_id from transfers where account_id > :after
   order by account_id offset :rows limit 1),
  (select account_id from usage_hourly where account_id > :after
   order by account_id offset :rows limit 1),
  (select account_id from usage_daily where account_id > :after
   order by account_id offset :rows limit 1)
) as "account_id?";

-- name: FindChargesEnd :optional
-- Finds the end of a slice of at least so many charges of a month: the end of an hour or a day of
-- an account. No row: the slice has all that are left.
-- :unit  `hour` or `day`
select account_id, date_trunc(:unit, admitted_at, 'UTC') + ('1 ' || :unit)::interval as "at!"
from charges
where month = :month::date and amount >= 0
  and (account_id, admitted_at) >= (:account_id, :at::timestamptz)
order by account_id, admitted_at
offset :charges limit 1;

-- name: FindIdsEnd :optional
-- Finds the end of a slice of so many request ids. No row: the slice has all that are left.
-- :months_from  the first open month
select request_id, account_id
from charges
where month >= :months_from::date and (request_id, account_id) >= (:request_id, :account_id)
order by request_id, account_id
offset :charges limit 1;

-- name: VerifyAccounts :many
-- Checks balances, budgets, days, holds and payments of the accounts after one and up to another.
-- Each row is a violation, at most 100 per invariant.
-- not each: category  sums and their parts alone
-- :months  as `ListOpenMonths` found them
with open_from as (
  -- Months are closed in their order.
  select coalesce(max(month) + interval '1 month', '-infinity')::date as day
  from month_closings
), progress as (
  select hours_from, removed_to, closed_to from usage_progress
), summed_days as (
  select account_id, key_id, model, (hour at time zone 'utc')::date as day,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount,
    sum(amount_input)::bigint as amount_input, sum(amount_output)::bigint as amount_output,
    sum(amount_cache)::bigint as amount_cache, sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut,
    sum(cache_saved)::bigint as cache_saved, sum(first_event_1)::bigint as first_event_1,
    sum(first_event_2)::bigint as first_event_2, sum(first_event_3)::bigint as first_event_3,
    sum(first_event_4)::bigint as first_event_4, sum(first_event_5)::bigint as first_event_5,
    sum(first_event_6)::bigint as first_event_6, sum(first_event_7)::bigint as first_event_7,
    sum(first_event_8)::bigint as first_event_8, sum(first_event_9)::bigint as first_event_9,
    sum(first_event_10)::bigint as first_event_10, sum(first_event_11)::bigint as first_event_11,
    sum(first_event_12)::bigint as first_event_12, sum(first_event_13)::bigint as first_event_13,
    sum(first_event_14)::bigint as first_event_14, sum(first_event_15)::bigint as first_event_15,
    sum(first_event_16)::bigint as first_event_16, sum(first_event_17)::bigint as first_event_17,
    sum(first_event_18)::bigint as first_event_18, sum(first_event_19)::bigint as first_event_19,
    sum(first_event_20)::bigint as first_event_20, sum(first_event_21)::bigint as first_event_21
  from usage_hourly
  where account_id > :after and account_id <= :upto
  group by 1, 2, 3, 4
), checks (invariant, subject, detail) as (
  select 'posted = transfers - charges', p.account_id || '/' || p."family",
    format('posted %s, transfers %s, charges %s', p.posted, coalesce(t.amount, 0), p.spent)
  from pools p
  left join (
    select account_id, "family", sum(amount) as amount
    from transfers
    where account_id > :after and account_id <= :upto
    group by account_id, "family"
  ) t using (account_id, "family")
  where p.account_id > :after and p.account_id <= :upto
    and p.posted <> coalesce(t.amount, 0) - p.spent
  union all
  select 'spent = that of its keys', p.account_id || '/' || p."family",
    format('spent %s, keys %s', p.spent, coalesce(b.spent, 0))
  from pools p
  left join (
    select account_id, "family", sum(spent) as spent
    from budgets
    where account_id > :after and account_id <= :upto and strpos(payer, ':') = 0
    group by account_id, "family"
  ) b using (account_id, "family")
  where p.account_id > :after and p.account_id <= :upto and p.spent <> coalesce(b.spent, 0)
  union all
  select 'held = holds', p.account_id || '/' || p."family",
    format('held %s, holds %s, running %s, requests %s', p.held, coalesce(h.amount, 0), p.running,
      coalesce(h.requests, 0))
  from pools p
  left join (
    select account_id, "family", sum(amount) as amount, count(*) as requests
    from holds
    where account_id > :after and account_id <= :upto
    group by account_id, "family"
  ) h using (account_id, "family")
  where p.account_id > :after and p.account_id <= :upto
    and (p.held <> coalesce(h.amount, 0) or p.running <> coalesce(h.requests, 0))
  union all
  select 'held <= posted unless in debt', account_id || '/' || "family",
    format('posted %s, held %s', posted, held)
  from pools
  where account_id > :after and account_id <= :upto and held > posted and not in_debt
  union all
  select 'status of a pool = status of its account', p.account_id || '/' || p."family",
    format('pool %s, account %s', p.account_status, a.status)
  from pools p
  join accounts a using (account_id)
  where p.account_id > :after and p.account_id <= :upto and p.account_status <> a.status
  union all
  select 'budget = its charges and holds', concat_ws('/', account_id, key_id),
    format('spent %s, charges %s, held %s, holds %s, running %s, requests %s',
      b.spent, x.spent, b.held, x.held, b.running, x.running)
  from (
    select k.account_id, k.key_id, b.spent, b.held, b.running, b.is_limited
    from keys k
    left join budgets b
      on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
    where k.account_id > :after and k.account_id <= :upto
  ) b
  full join (
    select account_id, key_id, sum(spent) as spent, sum(held) as held, sum(running) as running
    from (
      select account_id, key_id, amount as spent, 0 as held, 0 as running
      from summed_days, progress
      where day >= (select day from open_from) and (day, account_id) > (hours_from, removed_to)
      union all
      select account_id, key_id, amount, 0, 0
      from usage_daily, progress
      where account_id > :after and account_id <= :upto
        and day >= (select day from open_from) and (day, account_id) <= (hours_from, removed_to)
      union all
      select account_id, key_id, amount, 0, 0
      from closed_months
      where account_id > :after and account_id <= :upto and month < (select day from open_from)
      union all
      select account_id, key_id, 0, amount, 1
      from holds
      where account_id > :after and account_id <= :upto
    ) parts
    group by account_id, key_id
  ) x using (account_id, key_id)
  where (b.spent, b.held, b.running) is distinct from (coalesce(x.spent, 0),
    case when b.is_limited then coalesce(x.held, 0) else 0 end,
    case when b.is_limited then coalesce(x.running, 0) else 0 end)
  union all
  select 'budget = its charges and holds', concat_ws('/', account_id, "family", payer),
    format('held %s, holds %s, running %s, requests %s', b.held, h.held, b.running, h.running)
  from (
    select account_id, "family", payer, held, running, b.is_limited
    from budgets b
    where account_id > :after and account_id <= :upto and strpos(payer, ':') > 0
  ) b
  full join (
    select account_id, "family", manager as payer, sum(amount) as held, count(*) as running
    from holds
    where account_id > :after and account_id <= :upto and manager is not null
    group by account_id, "family", manager
  ) h using (account_id, "family", payer)
  where (b.held, b.running) is distinct from (
    case when b.is_limited then coalesce(h.held, 0) else 0 end,
    case when b.is_limited then coalesce(h.running, 0) else 0 end)
  union all
  select 'days = charges', concat_ws('/', account_id, key_id, model, day),
    format('amount %s, and its month has no charges', amount)
  from usage_daily, progress
  where account_id > :after and account_id <= :upto
    and day >= (select day from open_from) and (day, account_id) <= (hours_from, removed_to)
    and date_trunc('month', day)::date <> all (:months::date[])
  union all
  select 'days = hours', concat_ws('/', account_id, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, h.amount, u.requests, h.requests)
  from (
    select account_id, key_id, model, day,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
      first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
      first_event_12, first_event_13, first_event_14, first_event_15, first_event_16,
      first_event_17, first_event_18, first_event_19, first_event_20, first_event_21
    from usage_daily
    where account_id > :after and account_id <= :upto
  ) u
  full join summed_days h using (account_id, key_id, model, day)
  cross join progress g
  -- Rows of an open day count when it is closed.
  where (day, account_id) > (g.hours_from, g.removed_to) and day < g.closed_to
    and u is distinct from h
  union all
  select 'days = closed months', concat_ws('/', account_id, key_id, model, month),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, key_id, model, date_trunc('month', day)::date as month,
      sum(input) as input, sum(output) as output, sum(thinking) as thinking,
      sum(cache_write_5m) as cache_write_5m, sum(cache_write_1h) as cache_write_1h,
      sum(cache_read) as cache_read, sum(web_searches) as web_searches,
      sum(amount) as amount, sum(amount_input) as amount_input, sum(amount_output) as amount_output,
      sum(amount_cache) as amount_cache, sum(amount_thinking) as amount_thinking,
      sum(requests) as requests, sum(completed) as completed, sum(failed) as failed,
      sum(cut) as cut
    from usage_daily
    where account_id > :after and account_id <= :upto and day < (select day from open_from)
    group by 1, 2, 3, 4
  ) u
  full join (
    select account_id, key_id, model, month,
      sum(input) as input, sum(output) as output, sum(thinking) as thinking,
      sum(cache_write_5m) as cache_write_5m, sum(cache_write_1h) as cache_write_1h,
      sum(cache_read) as cache_read, sum(web_searches) as web_searches,
      sum(amount) as amount, sum(amount_input) as amount_input, sum(amount_output) as amount_output,
      sum(amount_cache) as amount_cache, sum(amount_thinking) as amount_thinking,
      sum(requests) as requests, sum(completed) as completed, sum(failed) as failed,
      sum(cut) as cut
    from closed_months
    where account_id > :after and account_id <= :upto and month < (select day from open_from)
    group by 1, 2, 3, 4
  ) c using (account_id, key_id, model, month)
  where u is distinct from c
  union all
  select 'sums = their parts', concat_ws('/', account_id, key_id, model, at),
    format('amount %s, requests %s', amount, requests)
  from (
    select account_id, key_id, model, hour::text as at,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
      first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
      first_event_12, first_event_13, first_event_14, first_event_15, first_event_16,
      first_event_17, first_event_18, first_event_19, first_event_20, first_event_21
    from usage_hourly
    where account_id > :after and account_id <= :upto
    union all
    select account_id, key_id, model, day::text,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
      first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
      first_event_12, first_event_13, first_event_14, first_event_15, first_event_16,
      first_event_17, first_event_18, first_event_19, first_event_20, first_event_21
    from usage_daily
    where account_id > :after and account_id <= :upto
  ) sums
  where amount <> amount_input + amount_output + amount_cache + amount_thinking
    or requests <> completed + failed + cut
    or requests < first_event_1 + first_event_2 + first_event_3 + first_event_4 + first_event_5
      + first_event_6 + first_event_7 + first_event_8 + first_event_9 + first_event_10
      + first_event_11 + first_event_12 + first_event_13 + first_event_14 + first_event_15
      + first_event_16 + first_event_17 + first_event_18 + first_event_19 + first_event_20
      + first_event_21
    or least(
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      first_event_1, first_event_2, first_event_3, first_event_4, first_event_5, first_event_6,
      first_event_7, first_event_8, first_event_9, first_event_10, first_event_11, first_event_12,
      first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
      first_event_18, first_event_19, first_event_20, first_event_21
    ) < 0
  union all
  select 'never hold and charge', account_id || '/' || request_id, ''
  from holds
  join charges using (account_id, request_id)
  where account_id > :after and account_id <= :upto
  union all
  select 'no hold of a closed month', account_id || '/' || request_id, month::text
  from holds
  where account_id > :after and account_id <= :upto and month < (select day from open_from)
  union all
  select 'no hold outlives its deadline', account_id || '/' || request_id, deadline::text
  from holds
  where account_id > :after and account_id <= :upto and deadline < now() - interval '3 minutes'
  union all
  -- Its processes poll once a second, and declare a node dead after 12 silent polls.
  select 'no hold of a dead node', account_id || '/' || request_id, node_id
  from holds
  where account_id > :after and account_id <= :upto
    and admitted_at < now() - interval '30 seconds'
    and node_id is not null
    and not exists (
      select 1 from nodes n where n.node_id = holds.node_id and n.silent_polls < 30)
  union all
  -- A crash between a transfer and its note leaves a row without the id, until the next sweep.
  select 'credits of payments = their transfers', account_id || '/' || idempotency_key,
    format('expected %s, transfers %s; kind %s %s, amount %s %s, transfer_id %s %s',
      count(*) filter (where not is_made), count(*) filter (where is_made), min(kind), max(kind),
      min(amount), max(amount), min(transfer_id), max(transfer_id))
  from (
    select o.account_id, 'pay:' || g.order_id || '#' || g.n as idempotency_key, o."family",
      case when g.micro + g.bonus_micro > 0 then 'deposit' else 'chargeback' end as kind,
      g.micro + g.bonus_micro as amount,
      g.transfer_id, false as is_made
    from payment_grants g
    join payment_orders o on o.order_id = g.order_id
    where o.account_id > :after and o.account_id <= :upto
    union all
    select o.account_id, 'refund:' || r.order_id || '#' || r.n, o."family", 'refund',
      -r.micro - r.bonus_micro, r.transfer_id, false
    from payment_refunds r
    join payment_orders o on o.order_id = r.order_id
    where o.account_id > :after and o.account_id <= :upto
      and (r.transfer_id is not null or r.state = 'asked')
    union all
    select o.account_id, 'refund:' || r.order_id || '#' || r.n || '/cancel', o."family",
      'adjustment', r.micro + r.bonus_micro, r.cancel_transfer_id, false
    from payment_refunds r
    join payment_orders o on o.order_id = r.order_id
    where o.account_id > :after and o.account_id <= :upto
      and (r.cancel_transfer_id is not null or r.state = 'cancelling')
    union all
    select u.account_id, 'promo:' || u.code_id, p."family", 'bonus', p.bonus_micro, u.transfer_id,
      false
    from promotion_uses u
    join promotions p on p.code_id = u.code_id
    where u.account_id > :after and u.account_id <= :upto
    union all
    select account_id, idempotency_key, "family", kind, amount, transfer_id, true
    from transfers
    where account_id > :after and account_id <= :upto
      and (kind = 'deposit' or idempotency_key like 'pay:%' or idempotency_key like 'refund:%'
        or idempotency_key like 'promo:%')
  ) both_sides
  group by account_id, idempotency_key
  having count(*) filter (where not is_made) <> 1
    or count(*) filter (where is_made) = 0 and max(transfer_id) is not null
    or min("family") <> max("family") or min(kind) <> max(kind) or min(amount) <> max(amount)
    or min(transfer_id) <> max(transfer_id)
  union all
  select 'moved credits = out of one pool and into the other',
    account_id || '/' || substr(idempotency_key, strpos(substr(idempotency_key, 6), ':') + 6),
    format('transfers %s, pools %s, sum %s', count(*), count(distinct "family"), sum(amount))
  from transfers
  where account_id > :after and account_id <= :upto and kind = 'adjustment'
    and (idempotency_key like 'move:out:%' or idempotency_key like 'move:in:%')
  group by account_id, substr(idempotency_key, strpos(substr(idempotency_key, 6), ':') + 6)
  having count(*) <> 2 or count(distinct "family") <> 2 or sum(amount) <> 0
  union all
  select 'a credited order has a receipt', o.order_id, ''
  from payment_orders o
  where o.account_id > :after and o.account_id <= :upto
    and exists (select 1 from payment_grants g where g.order_id = o.order_id and g.micro > 0)
    and not exists (
      select 1 from payment_documents d where d.order_id = o.order_id and d.kind = 'receipt')
)
select invariant as "invariant!", subject as "subject!", detail as "detail!"
from (
  select *, row_number() over (partition by invariant order by subject) as position from checks
) numbered
where position <= 100;

-- name: VerifyCharges :many
-- Checks charges of a month and their hours, from an hour of an account on and before another, in
-- the order of accounts and times. Each row is a violation, at most 100 per invariant. None if the
-- month was closed meanwhile.
-- not each: category, step  the grant bounds output and thinking; no price above is read
with open_from as (
  -- Months are closed in their order.
  select coalesce(max(month) + interval '1 month', '-infinity')::date as day
  from month_closings
), slice as materialized (
  select account_id, request_id, "family", key_id, model,
    date_trunc('hour', admitted_at, 'UTC') as hour, price_version, granted_output, hold, overrun,
    output_over, thinking_over, cost, cost_over, prompt_over, prompt_above,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut, cache_saved
  from charge_sums
  where month = :month::date and month >= (select day from open_from)
    and (account_id, admitted_at) >= (:from_account, :from_at::timestamptz)
    and (account_id, admitted_at) < (:to_account, :to_at::timestamptz)
), charged_hours as (
  select account_id, key_id, model, hour,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount,
    sum(amount_input)::bigint as amount_input, sum(amount_output)::bigint as amount_output,
    sum(amount_cache)::bigint as amount_cache, sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut,
    sum(cache_saved)::bigint as cache_saved
  from slice
  group by 1, 2, 3, 4
), checks (invariant, subject, detail) as (
  select 'charge <= hold', account_id || '/' || request_id,
    format('amount %s, hold %s', amount, hold)
  from slice
  where amount > hold or amount < 0
  union all
  select 'charge = tokens x price', account_id || '/' || request_id,
    format('amount %s, overrun %s, price %s', amount, overrun, price_version)
  from slice
  where amount is distinct from least(hold, cost)
    or amount + overrun is distinct from cost + cost_over
  union all
  select 'price is of the length of the prompt', account_id || '/' || request_id,
    format('prompt %s, price %s', input::bigint + cache_read + cache_write_5m + cache_write_1h,
      price_version)
  from slice
  where input::bigint + cache_read + cache_write_5m + cache_write_1h <= coalesce(prompt_over, -1)
    or input::bigint + cache_read + cache_write_5m + cache_write_1h > prompt_above
  union all
  select 'charged output <= granted output', account_id || '/' || request_id,
    format('output %s, thinking %s, granted %s', output, thinking, granted_output)
  from slice
  where output::bigint + thinking > granted_output
    or output_over::bigint + thinking_over > 0 and output::bigint + thinking < granted_output
  union all
  select 'charge is of the pool of its key', concat_ws('/', s.account_id, s.key_id),
    format('charges of %s, key of %s', s."family", k."family")
  from (select distinct account_id, key_id, "family" from slice) s
  left join keys k using (key_id)
  where (k.account_id, k."family") is distinct from (s.account_id, s."family")
  union all
  select 'hours = charges', concat_ws('/', account_id, key_id, model, hour),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, key_id, model, hour,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut, cache_saved
    from usage_hourly
    where hour >= :month::date::timestamp at time zone 'utc'
      and hour < (:month::date + interval '1 month') at time zone 'utc'
      and (account_id, hour) >= (:from_account, :from_at::timestamptz)
      and (account_id, hour) < (:to_account, :to_at::timestamptz)
  ) u
  full join charged_hours c using (account_id, key_id, model, hour)
  cross join usage_progress g
  -- The hours before are removed.
  where (u.hour is not null
      or ((hour at time zone 'utc')::date, account_id) > (g.hours_from, g.removed_to))
    and (hour at time zone 'utc')::date >= (select day from open_from)
    and u is distinct from c
)
select invariant as "invariant!", subject as "subject!", detail as "detail!"
from (
  select *, row_number() over (partition by invariant order by subject) as position from checks
) numbered
where position <= 100;

-- name: VerifyDays :many
-- Checks days without hours of a month, and its tags, from a day of an account on and before
-- another, in the order of accounts and times. Each row is a violation, at most 100 per invariant.
-- None if the month was closed meanwhile.
with open_from as (
  -- Months are closed in their order.
  select coalesce(max(month) + interval '1 month', '-infinity')::date as day
  from month_closings
), slice as materialized (
  select account_id, key_id, model, (admitted_at at time zone 'utc')::date as day, tags,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut, cache_saved
  from charge_sums
  where month = :month::date and month >= (select day from open_from)
    and (account_id, admitted_at) >= (:from_account, :from_at::timestamptz)
    and (account_id, admitted_at) < (:to_account, :to_at::timestamptz)
    and (tags is not null
      or ((admitted_at at time zone 'utc')::date, account_id)
        <= (select hours_from, removed_to from usage_progress))
), charged_days as (
  select account_id, key_id, model, day,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount,
    sum(amount_input)::bigint as amount_input, sum(amount_output)::bigint as amount_output,
    sum(amount_cache)::bigint as amount_cache, sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut,
    sum(cache_saved)::bigint as cache_saved
  from slice
  group by 1, 2, 3, 4
), kept_tags as materialized (
  select account_id, tag, value, key_id, model, day,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  from tags_daily
  where day >= :month::date and day < :month::date + interval '1 month'
    and account_id >= :from_account and account_id <= :to_account
    and (account_id, day::timestamp at time zone 'utc') >= (:from_account, :from_at::timestamptz)
    and (account_id, day::timestamp at time zone 'utc') < (:to_account, :to_at::timestamptz)
), charged_tags as (
  -- A value that its day does not keep is one of the others.
  select account_id, tag collate "C" as tag,
    case when k.value is null then '(other)' else t.value end collate "C" as value,
    key_id, model, day,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount,
    sum(amount_input)::bigint as amount_input, sum(amount_output)::bigint as amount_output,
    sum(amount_cache)::bigint as amount_cache, sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut
  from slice
  cross join lateral jsonb_each_text(tags) as t (tag, value)
  left join (select distinct account_id, tag, value, day from kept_tags) k
    using (account_id, tag, value, day)
  group by 1, 2, 3, 4, 5, 6
), checks (invariant, subject, detail) as (
  select 'days = charges', concat_ws('/', account_id, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, key_id, model, day,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut, cache_saved
    from usage_daily
    where day >= :month::date and day < :month::date + interval '1 month'
      and (account_id, day) >= (:from_account, (:from_at::timestamptz at time zone 'utc')::date)
      and (account_id, day) < (:to_account, (:to_at::timestamptz at time zone 'utc')::date)
  ) u
  full join charged_days c using (account_id, key_id, model, day)
  cross join usage_progress g
  where day >= (select day from open_from) and (day, account_id) <= (g.hours_from, g.removed_to)
    and u is distinct from c
  union all
  select 'tags of days = charges', concat_ws('/', account_id, tag, value, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from kept_tags u
  full join charged_tags c using (account_id, tag, value, key_id, model, day)
  cross join usage_progress g
  where day < g.tags_to and day >= (select day from open_from) and u is distinct from c
)
select invariant as "invariant!", subject as "subject!", detail as "detail!"
from (
  select *, row_number() over (partition by invariant order by subject) as position from checks
) numbered
where position <= 100;

-- name: VerifyIds :many
-- Finds the request ids with several charges in open months, from one on and before another.
-- :months_from  the first open month
select 'one charge per request' as "invariant!", account_id || '/' || request_id as "subject!",
  format('%s charges', count(*)) as "detail!"
from charges
where month >= :months_from::date
  and (request_id, account_id) >= (:from_request, :from_account)
  and (request_id, account_id) < (:to_request, :to_account)
group by request_id, account_id
having count(*) > 1
order by 2
limit 100;

-- name: FindManagers :optional
-- Returns the time of now, and one some minutes ago: no settlement that began before it is still to
-- come. No row: no person and no management key has a budget.
select (now() - interval '2 minutes')::text as "settled_to!"
where exists (select from budgets where strpos(payer, ':') > 0);

-- name: FindSettledEnd :one
-- Finds the end of a slice of at least so many charges of open months in the order of their
-- settlement. Null: the slice has all that are left before a time.
-- :months_from  the first open month
select (
  select settled_at::text
  from charges
  where month >= :months_from::date and amount >= 0
    and settled_at > :after::timestamptz and settled_at <= :settled_to::timestamptz
  order by settled_at
  offset :charges limit 1
) as "settled_at?";

-- name: SumManaged :many
-- Sums the charges of a slice by the person or management key that they name.
-- :months_from  the first open month
select account_id, "family", manager as "payer!", sum(amount)::bigint as "amount!"
from charges
where month >= :months_from::date and amount >= 0 and manager is not null
  and settled_at > :after::timestamptz and settled_at <= :upto::timestamptz
group by account_id, "family", manager;

-- name: VerifyManagers :many
-- Checks what persons and management keys have spent: by sums of charges of open months up to a
-- time, by the charges after it, and by the sums of closed months. Each row is a violation, at most
-- 100. None if a month was closed meanwhile.
-- :months_from  the first open month
-- :last_closed?  the last closed month; null: none
with summed as (
  select account_id, "family", payer, sum(amount) as spent
  from (
    select account_id, "family", payer, amount
    from unnest(:account_ids::text[], :families::text[], :payers::text[], :amounts::bigint[])
      as s (account_id, "family", payer, amount)
    union all
    select account_id, "family", manager, amount
    from charges
    where month >= :months_from::date and amount >= 0 and manager is not null
      and settled_at > :after::timestamptz
    union all
    select account_id, "family", payer, amount
    from closed_budgets
    where month <= :last_closed::date
  ) parts
  group by account_id, "family", payer
)
select 'budget = its charges and holds' as "invariant!",
  concat_ws('/', account_id, "family", payer) as "subject!",
  format('spent %s, charges %s', b.spent, s.spent) as "detail!"
from (
  select account_id, "family", payer, spent from budgets where strpos(payer, ':') > 0
) b
full join summed s using (account_id, "family", payer)
where b.spent is distinct from coalesce(s.spent, 0)
  and (select max(month) from month_closings) is not distinct from :last_closed::date
order by 2
limit 100;

-- name: ListClosedMonths :many
-- Lists the closed months, in their order.
select month from month_closings order by month;

-- name: VerifyClosedMonth :many
-- Checks the sums of a closed month. Those of an open one belong to a closing under way. A row is a
-- violation.
select 'a closed month = its sums' as "invariant!", month::text as "subject!",
  format('amount %s and %s, charges %s and %s', m.amount, c.amount, m.charges, c.requests)
    as "detail!"
from month_closings m
cross join (
  select coalesce(sum(amount), 0) as amount, coalesce(sum(requests), 0) as requests
  from closed_months
  where month = :month::date
) c
where m.month = :month::date and (m.amount, m.charges) <> (c.amount, c.requests);

-- name: ListSalesMonths :many
-- Lists the months with sums of sales or days that are closed, in their order. Months whose charges
-- were removed before there were such sums have none.
with bounds (month) as (
  select min(month) from month_closings
  union all
  select min(to_date(right(c.relname, 7), 'YYYY_MM'))
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'charges'::regclass
  union all
  select min(month) from sales_monthly
), ends (month) as (
  select date_trunc('month', closed_to::timestamp)::date from usage_progress
  union all
  select max(month) from sales_monthly
)
select month::date as "month!"
from generate_series((select min(month) from bounds)::timestamp,
  (select max(month) from ends)::timestamp, interval '1 month') as series (month)
where not exists (
    select from month_archives a where a.month = series.month::date and a.dropped_at is not null)
  or exists (select from sales_monthly s where s.month = series.month::date)
order by 1;

-- name: FindSalesEnd :optional
-- Finds the end of a slice of so many sums of sales of a month, in the order of days and accounts.
-- No row: the slice has all that are left.
select day, account_id
from sales_daily
where day < :month::date + interval '1 month' and (day, account_id) >= (:day::date, :account_id)
order by day, account_id
offset :rows limit 1;

-- name: VerifySales :many
-- Compares sums of sales with the closed days, from a day of an account on and before another. Each
-- row is a violation, at most 100.
-- not each: step  they have none
with progress as (
  select least(g.closed_to, (s.complete_to at time zone 'utc')::date) as days_to, s.settled_at,
    s.request_id, s.account_id
  from usage_progress g
  cross join sales_progress s
  where not s.is_emptying
), sold as (
  select day, account_id, "family", model,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount, sum(requests)::bigint as requests
  from sales_daily
  where (day, account_id) >= (:from_day::date, :from_account)
    and (day, account_id) < (:to_day::date, :to_account) and day < (select days_to from progress)
  group by 1, 2, 3, 4
), used as (
  select u.day, u.account_id, k."family" collate "C" as "family", u.model collate "C" as model,
    sum(u.input)::bigint as input, sum(u.output)::bigint as output,
    sum(u.thinking)::bigint as thinking, sum(u.cache_write_5m)::bigint as cache_write_5m,
    sum(u.cache_write_1h)::bigint as cache_write_1h, sum(u.cache_read)::bigint as cache_read,
    sum(u.web_searches)::bigint as web_searches,
    sum(u.amount)::bigint as amount, sum(u.requests)::bigint as requests
  from usage_daily u
  join keys k on k.key_id = u.key_id
  where u.day >= :from_day and u.day <= :to_day
    and (u.day, u.account_id) >= (:from_day, :from_account)
    and (u.day, u.account_id) < (:to_day, :to_account) and u.day < (select days_to from progress)
  group by 1, 2, 3, 4
), differing as (
  select account_id, "family", model, day, s.amount as sold, u.amount as used,
    s.requests as sold_requests, u.requests as used_requests
  from sold s
  full join used u using (day, account_id, "family", model)
  where s is distinct from u
)
select 'sales = days' as "invariant!",
  concat_ws('/', d.account_id, d."family", d.model, d.day) as "subject!",
  format('amount %s and %s, requests %s and %s', d.sold, d.used, d.sold_requests, d.used_requests)
    as "detail!"
from differing d
cross join progress p
where not exists (
  select from charges c
  where c.account_id = d.account_id and c.month = date_trunc('month', d.day::timestamp)::date
    and c.admitted_at >= d.day::timestamp at time zone 'utc'
    and c.admitted_at < (d.day + 1)::timestamp at time zone 'utc' and c.amount >= 0
    and (c.settled_at, c.request_id, c.account_id) > (p.settled_at, p.request_id, p.account_id))
order by 2
limit 100;

-- name: FindSalesAccount :optional
-- Finds the last account of a slice of so many sums of sales of a month. No row: the slice has all
-- that are left.
select account_id
from sales_monthly
where month = :month::date and account_id > :after
order by account_id
offset :rows limit 1;

-- name: VerifySalesMonth :many
-- Compares sums of sales of a month with those of its days, of the accounts after one and up to
-- another. Each row is a violation, at most 100. While they are written anew, none.
-- not each: step  they have none
with summed as (
  select account_id, "family", model, provider, cost_version,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount, sum(overrun)::bigint as overrun, sum(cost_pico) as cost_pico,
    sum(requests)::bigint as requests, sum(uncosted)::bigint as uncosted
  from sales_daily
  where day >= :month::date and day < :month::date + interval '1 month'
    and account_id > :after and account_id <= :upto
  group by 1, 2, 3, 4, 5
), kept as (
  select account_id, "family", model, provider, cost_version, input, output, thinking,
    cache_write_5m, cache_write_1h, cache_read, web_searches, amount, overrun,
    cost_pico::numeric as cost_pico, requests, uncosted
  from sales_monthly
  where month = :month and account_id > :after and account_id <= :upto
)
select 'sales of a month = its days' as "invariant!",
  concat_ws('/', account_id, "family", model, provider, cost_version, :month::text) as "subject!",
  format('amount %s and %s, cost %s and %s, requests %s and %s', k.amount, s.amount, k.cost_pico,
    s.cost_pico, k.requests, s.requests) as "detail!"
from kept k
full join summed s using (account_id, "family", model, provider, cost_version)
where k is distinct from s and not (select is_emptying from sales_progress)
order by 2
limit 100;

-- name: VerifySalesTotals :many
-- Compares sums of sales of all accounts with those of each, from a day on and before another. Each
-- row is a violation, at most 100. While they are written anew, none.
-- not each: step  they have none
with summed as (
  select day, "family", model, provider, cost_version,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount, sum(overrun)::bigint as overrun, sum(cost_pico) as cost_pico,
    sum(requests)::bigint as requests, sum(uncosted)::bigint as uncosted
  from sales_daily
  where day >= :from_day::date and day < :to_day::date
  group by 1, 2, 3, 4, 5
), kept as (
  select day, "family", model, provider, cost_version, input, output, thinking, cache_write_5m,
    cache_write_1h, cache_read, web_searches, amount, overrun, cost_pico::numeric as cost_pico,
    requests, uncosted
  from sales_totals
  where day >= :from_day and day < :to_day
)
select 'sales of all accounts = those of each' as "invariant!",
  concat_ws('/', "family", model, provider, cost_version, day) as "subject!",
  format('amount %s and %s, cost %s and %s, requests %s and %s', k.amount, s.amount, k.cost_pico,
    s.cost_pico, k.requests, s.requests) as "detail!"
from kept k
full join summed s using (day, "family", model, provider, cost_version)
where k is distinct from s and not (select is_emptying from sales_progress)
order by 2
limit 100;

-- name: VerifyTotals :many
-- Checks uses of promotions and numbers of documents. Each row is a violation.
with checks (invariant, subject, detail) as (
  select 'uses of a promotion = its count', p.code_id,
    format('used %s, uses %s', p.used, coalesce(u.uses, 0))
  from promotions p
  left join (select code_id, count(*) as uses from promotion_uses group by code_id) u
    on u.code_id = p.code_id
  where p.used <> coalesce(u.uses, 0)
  union all
  select 'numbers of documents have no gap', concat_ws('/', n.seller, n.kind, n.year),
    format('last number %s, documents %s, first %s, last %s',
      n.last, coalesce(d.documents, 0), d.first, d.last)
  from payment_numbers n
  left join (
    select seller, kind, year, count(*) as documents, min(n) as first, max(n) as last
    from payment_documents
    group by seller, kind, year
  ) d on d.seller = n.seller and d.kind = n.kind and d.year = n.year
  where (d.documents, d.first, d.last) is distinct from (n.last::bigint, 1, n.last)
)
select invariant as "invariant!", subject as "subject!", detail as "detail!"
from checks
order by 1, 2
limit 100;
