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

-- name: VerifyLedger :many
-- Checks every invariant of the ledger. Each row is a violation, at most 100 per invariant; no rows
-- means that all invariants hold. Of closed months it takes the sums instead of the charges.
-- not each: category  the grant bounds output and thinking alone
with open_from as (
  -- Months are closed in their order.
  select coalesce(max(month) + interval '1 month', '-infinity')::date as day
  from month_closings
), open_charges as not materialized (
  select *
  from charges
  where month >= (select day from open_from)
), charged_hours as materialized (
  select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC') as hour,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read,
    sum(amount)::bigint as amount, sum(amount_input)::bigint as amount_input,
    sum(amount_output)::bigint as amount_output, sum(amount_cache)::bigint as amount_cache,
    sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut
  from charge_sums
  where month >= (select day from open_from)
  group by 1, 2, 3, 4
), charged_days as (
  select account_id, key_id, model, (hour at time zone 'utc')::date as day,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read,
    sum(amount)::bigint as amount, sum(amount_input)::bigint as amount_input,
    sum(amount_output)::bigint as amount_output, sum(amount_cache)::bigint as amount_cache,
    sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut
  from charged_hours
  group by 1, 2, 3, 4
), summed_days as (
  select account_id, key_id, model, (hour at time zone 'utc')::date as day,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read,
    sum(amount)::bigint as amount, sum(amount_input)::bigint as amount_input,
    sum(amount_output)::bigint as amount_output, sum(amount_cache)::bigint as amount_cache,
    sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut,
    sum(first_event_1)::bigint as first_event_1, sum(first_event_2)::bigint as first_event_2,
    sum(first_event_3)::bigint as first_event_3, sum(first_event_4)::bigint as first_event_4,
    sum(first_event_5)::bigint as first_event_5, sum(first_event_6)::bigint as first_event_6,
    sum(first_event_7)::bigint as first_event_7, sum(first_event_8)::bigint as first_event_8,
    sum(first_event_9)::bigint as first_event_9, sum(first_event_10)::bigint as first_event_10
  from usage_hourly
  group by 1, 2, 3, 4
), charged_tags as (
  -- A value that its day does not keep is one of the others.
  select account_id, tag collate "C" as tag,
    case when k.value is null then '(other)' else t.value end collate "C" as value,
    key_id, model, day,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read,
    sum(amount)::bigint as amount, sum(amount_input)::bigint as amount_input,
    sum(amount_output)::bigint as amount_output, sum(amount_cache)::bigint as amount_cache,
    sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut
  from (
    select *, (admitted_at at time zone 'utc')::date as day
    from charge_sums
    where tags is not null and month >= (select day from open_from)
  ) c
  cross join lateral jsonb_each_text(tags) as t (tag, value)
  left join (select distinct account_id, tag, value, day from tags_daily) k
    using (account_id, tag, value, day)
  group by 1, 2, 3, 4, 5, 6
), checks (invariant, subject, detail) as (
  select 'posted = transfers - charges', p.account_id || '/' || p."family",
    format('posted %s, transfers %s, charges %s',
      p.posted, coalesce(t.amount, 0), coalesce(c.amount, 0))
  from pools p
  left join (
    select account_id, "family", sum(amount) as amount from transfers group by account_id, "family"
  ) t using (account_id, "family")
  left join (
    select account_id, "family", sum(amount) as amount
    from (
      select account_id, "family", amount from open_charges
      union all
      select account_id, "family", amount from closed_months
    ) parts
    group by account_id, "family"
  ) c using (account_id, "family")
  where p.posted <> coalesce(t.amount, 0) - coalesce(c.amount, 0)
  union all
  select 'held = holds', p.account_id || '/' || p."family",
    format('held %s, holds %s', p.held, coalesce(h.amount, 0))
  from pools p
  left join (
    select account_id, "family", sum(amount) as amount from holds group by account_id, "family"
  ) h using (account_id, "family")
  where p.held <> coalesce(h.amount, 0)
  union all
  select 'held <= posted unless in debt', account_id || '/' || "family",
    format('posted %s, held %s', posted, held)
  from pools
  where held > posted and not in_debt
  union all
  select 'status of a pool = status of its account', p.account_id || '/' || p."family",
    format('pool %s, account %s', p.account_status, a.status)
  from pools p
  join accounts a using (account_id)
  where p.account_status <> a.status
  union all
  select 'month = its charges and holds',
    concat_ws('/', account_id, key_id) || '/' || month,
    format('spent %s, charges %s, held %s, holds %s', m.spent, x.spent, m.held, x.held)
  from key_months m
  full join (
    select account_id, key_id, month, sum(spent) as spent, sum(held) as held
    from (
      select account_id, key_id, month, amount as spent, 0 as held from open_charges
      union all
      select account_id, key_id, month, amount, 0 from closed_months
      union all
      select account_id, key_id, month, 0, amount from holds
    ) parts
    group by account_id, key_id, month
  ) x using (account_id, key_id, month)
  where coalesce(m.spent, 0) <> coalesce(x.spent, 0) or coalesce(m.held, 0) <> coalesce(x.held, 0)
  union all
  select 'charge <= hold', account_id || '/' || request_id,
    format('amount %s, hold %s', amount, hold)
  from open_charges
  where amount > hold or amount < 0
  union all
  select 'never hold and charge', account_id || '/' || request_id, ''
  from holds
  join charges using (account_id, request_id)
  union all
  select 'one charge per request', account_id || '/' || request_id, format('%s charges', count(*))
  from open_charges
  group by account_id, request_id
  having count(*) > 1
  union all
  select 'charge = tokens x price', account_id || '/' || request_id,
    format('amount %s, overrun %s, price %s', amount, overrun, price_version)
  from charge_sums
  where month >= (select day from open_from)
    and (amount is distinct from least(hold, cost)
      or amount + overrun is distinct from cost + cost_over)
  union all
  select 'charged output <= granted output', account_id || '/' || request_id,
    format('output %s, thinking %s, granted %s', output, thinking, granted_output)
  from open_charges
  where output::bigint + thinking > granted_output
    or output_over::bigint + thinking_over > 0 and output::bigint + thinking < granted_output
  union all
  select 'hours = charges', concat_ws('/', account_id, key_id, model, hour),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, key_id, model, hour,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut
    from usage_hourly
  ) u
  full join charged_hours c using (account_id, key_id, model, hour)
  cross join usage_progress g
  -- The hours before are removed.
  where (u.hour is not null or (hour at time zone 'utc')::date >= g.hours_from)
    and (hour at time zone 'utc')::date >= (select day from open_from)
    and u is distinct from c
  union all
  select 'days = charges', concat_ws('/', account_id, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, key_id, model, day,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut
    from usage_daily
  ) u
  full join charged_days c using (account_id, key_id, model, day)
  cross join usage_progress g
  where (u.day is not null or day < g.closed_to)
    and day >= (select day from open_from)
    and u is distinct from c
  union all
  select 'days = hours', concat_ws('/', account_id, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, h.amount, u.requests, h.requests)
  from (
    select account_id, key_id, model, day,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      first_event_1, first_event_2, first_event_3, first_event_4, first_event_5, first_event_6,
      first_event_7, first_event_8, first_event_9, first_event_10
    from usage_daily
  ) u
  full join summed_days h using (account_id, key_id, model, day)
  cross join usage_progress g
  where day >= g.hours_from and day < g.closed_to and u is distinct from h
  union all
  select 'tags of days = charges', concat_ws('/', account_id, tag, value, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, tag, value, key_id, model, day,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut
    from tags_daily
  ) u
  full join charged_tags c using (account_id, tag, value, key_id, model, day)
  cross join usage_progress g
  where (u.amount is not null or day < g.tags_to) and day >= (select day from open_from)
    and u is distinct from c
  union all
  select 'days = closed months', concat_ws('/', account_id, key_id, model, month),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, key_id, model, date_trunc('month', day)::date as month,
      sum(input) as input, sum(output) as output, sum(thinking) as thinking,
      sum(cache_write_5m) as cache_write_5m, sum(cache_write_1h) as cache_write_1h,
      sum(cache_read) as cache_read,
      sum(amount) as amount, sum(amount_input) as amount_input, sum(amount_output) as amount_output,
      sum(amount_cache) as amount_cache, sum(amount_thinking) as amount_thinking,
      sum(requests) as requests, sum(completed) as completed, sum(failed) as failed,
      sum(cut) as cut
    from usage_daily
    where day < (select day from open_from)
    group by 1, 2, 3, 4
  ) u
  full join (
    select account_id, key_id, model, month,
      sum(input) as input, sum(output) as output, sum(thinking) as thinking,
      sum(cache_write_5m) as cache_write_5m, sum(cache_write_1h) as cache_write_1h,
      sum(cache_read) as cache_read,
      sum(amount) as amount, sum(amount_input) as amount_input, sum(amount_output) as amount_output,
      sum(amount_cache) as amount_cache, sum(amount_thinking) as amount_thinking,
      sum(requests) as requests, sum(completed) as completed, sum(failed) as failed,
      sum(cut) as cut
    from closed_months
    group by 1, 2, 3, 4
  ) c using (account_id, key_id, model, month)
  where u is distinct from c
  union all
  select 'a closed month = its sums', month::text,
    format('amount %s and %s, charges %s and %s', m.amount, c.amount, m.charges, c.requests)
  from month_closings m
  full join (
    select month, sum(amount) as amount, sum(requests) as requests
    from closed_months
    group by month
  ) c using (month)
  where m.month is null
    or (m.amount, m.charges) <> (coalesce(c.amount, 0), coalesce(c.requests, 0))
  union all
  select 'no hold of a closed month', account_id || '/' || request_id, month::text
  from holds
  where month < (select day from open_from)
  union all
  select 'sums = their parts', concat_ws('/', account_id, key_id, model, at),
    format('amount %s, requests %s', amount, requests)
  from (
    select account_id, key_id, model, hour::text as at,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      first_event_1, first_event_2, first_event_3, first_event_4, first_event_5, first_event_6,
      first_event_7, first_event_8, first_event_9, first_event_10
    from usage_hourly
    union all
    select account_id, key_id, model, day::text,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      first_event_1, first_event_2, first_event_3, first_event_4, first_event_5, first_event_6,
      first_event_7, first_event_8, first_event_9, first_event_10
    from usage_daily
  ) sums
  where amount <> amount_input + amount_output + amount_cache + amount_thinking
    or requests <> completed + failed + cut
    or requests < first_event_1 + first_event_2 + first_event_3 + first_event_4 + first_event_5
      + first_event_6 + first_event_7 + first_event_8 + first_event_9 + first_event_10
    or least(
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      first_event_1, first_event_2, first_event_3, first_event_4, first_event_5, first_event_6,
      first_event_7, first_event_8, first_event_9, first_event_10
    ) < 0
  union all
  select 'no hold outlives its deadline', account_id || '/' || request_id, deadline::text
  from holds
  where deadline < now() - interval '3 minutes'
  union all
  -- Its processes poll once a second, and declare a node dead after 12 silent polls.
  select 'no hold of a dead node', account_id || '/' || request_id, node_id
  from holds
  where admitted_at < now() - interval '30 seconds'
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
      case when g.micro > 0 then 'deposit' else 'chargeback' end as kind, g.micro as amount,
      g.transfer_id, false as is_made
    from payment_grants g
    join payment_orders o on o.order_id = g.order_id
    union all
    select o.account_id, 'refund:' || r.order_id || '#' || r.n, o."family", 'refund',
      -r.micro - r.bonus_micro, r.transfer_id, false
    from payment_refunds r
    join payment_orders o on o.order_id = r.order_id
    where r.transfer_id is not null or r.state = 'asked'
    union all
    select o.account_id, 'refund:' || r.order_id || '#' || r.n || '/cancel', o."family",
      'adjustment', r.micro + r.bonus_micro, r.cancel_transfer_id, false
    from payment_refunds r
    join payment_orders o on o.order_id = r.order_id
    where r.cancel_transfer_id is not null or r.state = 'cancelling'
    union all
    select u.account_id, 'promo:' || u.code_id, p."family", 'bonus', p.bonus_micro, u.transfer_id,
      false
    from promotion_uses u
    join promotions p on p.code_id = u.code_id
    union all
    select account_id, idempotency_key, "family", kind, amount, transfer_id, true
    from transfers
    where kind = 'deposit' or idempotency_key like 'pay:%' or idempotency_key like 'refund:%'
      or idempotency_key like 'promo:%'
  ) both_sides
  group by account_id, idempotency_key
  having count(*) filter (where not is_made) <> 1
    or count(*) filter (where is_made) = 0 and max(transfer_id) is not null
    or min("family") <> max("family") or min(kind) <> max(kind) or min(amount) <> max(amount)
    or min(transfer_id) <> max(transfer_id)
  union all
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
  union all
  select 'a credited order has a receipt', o.order_id, ''
  from payment_orders o
  where exists (select 1 from payment_grants g where g.order_id = o.order_id and g.micro > 0)
    and not exists (
      select 1 from payment_documents d where d.order_id = o.order_id and d.kind = 'receipt')
)
select invariant as "invariant!", subject as "subject!", detail as "detail!"
from (
  select *, row_number() over (partition by invariant order by subject) as position from checks
) numbered
where position <= 100
order by invariant, subject;
