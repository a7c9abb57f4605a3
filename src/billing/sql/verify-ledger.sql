-- Checks every invariant of the ledger. Each row is a violation, at most 100 per invariant; no rows
-- means that all invariants hold. Of closed months it takes the sums instead of the charges.
with open_from as (
  -- Months are closed in their order.
  select coalesce(max(month) + interval '1 month', '-infinity')::date as day
  from month_closings
), open_charges as not materialized (
  select *
  from charges
  where month >= (select day from open_from)
), charged_hours as materialized (
  select c.account_id, c.key_id, c.model, date_trunc('hour', c.admitted_at, 'UTC') as hour,
    each_category(sum(c.#) as #), sum(c.amount) as amount,
    sum(least(upto.input, c.hold)) as amount_input,
    sum(c.amount - least(upto.thinking, c.hold)) as amount_output,
    sum(least(upto.cache, c.hold) - least(upto.input, c.hold)) as amount_cache,
    sum(least(upto.thinking, c.hold) - least(upto.cache, c.hold)) as amount_thinking,
    count(*) as requests,
    count(*) filter (where c.outcome = 'completed') as completed,
    count(*) filter (where c.outcome in ('provider_failed', 'provider_broke', 'gateway_failed',
      'reaped', 'input_above_hold')) as failed,
    count(*) filter (where c.outcome in ('client_left_before_acceptance',
      'client_left_before_content', 'client_left', 'revoked', 'time_limit')) as cut
  from open_charges c
  join price_versions p using (price_version)
  cross join lateral (
    select c.input * p.input as input,
      c.cache_write_5m * p.cache_write_5m + c.cache_write_1h * p.cache_write_1h
        + c.cache_read * p.cache_read as cache,
      c.thinking * p.thinking as thinking
  ) cost
  cross join lateral (
    select cost.input, cost.input + cost.cache as cache,
      cost.input + cost.cache + cost.thinking as thinking
  ) upto
  group by 1, 2, 3, 4
), charged_days as (
  select account_id, key_id, model, (hour at time zone 'utc')::date as day,
    each_charged(sum(#) as #)
  from charged_hours
  group by 1, 2, 3, 4
), summed_days as (
  select account_id, key_id, model, (hour at time zone 'utc')::date as day, each_sum(sum(#) as #)
  from usage_hourly
  group by 1, 2, 3, 4
), charged_tags as (
  -- A value that its day does not keep is one of the others.
  select account_id, tag, case when k.value is null then '(other)' else t.value end as value,
    key_id, model, day, each_charged(sum(t.#) as #)
  from (
    select c.account_id, t.tag, t.value, c.key_id, c.model,
      (c.admitted_at at time zone 'utc')::date as day, charged_of(c, p)
    from open_charges c
    join price_versions p using (price_version)
    cross join lateral jsonb_each_text(c.tags) as t (tag, value)
    where c.tags is not null
  ) t
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
  select 'charge = tokens x price', c.account_id || '/' || c.request_id,
    format('amount %s, overrun %s, price %s', c.amount, c.overrun, c.price_version)
  from open_charges c
  left join price_versions p using (price_version)
  cross join lateral (
    select sum(tokens * price) as micro
    from unnest(array[each_category(c.#::bigint)], array[each_category(p.#)]) as _ (tokens, price)
  ) cost
  where c.amount is distinct from least(c.hold, cost.micro)
    or c.amount + c.overrun is distinct from
      cost.micro + c.output_over * p.output + c.thinking_over * p.thinking
  union all
  select 'charged output <= granted output', account_id || '/' || request_id,
    format('output %s, thinking %s, granted %s', output, thinking, granted_output)
  from open_charges
  where output::bigint + thinking > granted_output
    or output_over::bigint + thinking_over > 0 and output::bigint + thinking < granted_output
  union all
  select 'hours = charges', concat_ws('/', account_id, key_id, model, hour),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from usage_hourly u
  full join charged_hours c using (account_id, key_id, model, hour)
  cross join usage_progress g
  -- The hours before are removed.
  where (u.hour is not null or (hour at time zone 'utc')::date >= g.hours_from)
    and (hour at time zone 'utc')::date >= (select day from open_from)
    and (each_charged(u.#)) is distinct from (each_charged(c.#))
  union all
  select 'days = charges', concat_ws('/', account_id, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from usage_daily u
  full join charged_days c using (account_id, key_id, model, day)
  cross join usage_progress g
  where (u.day is not null or day < g.closed_to)
    and day >= (select day from open_from)
    and (each_charged(u.#)) is distinct from (each_charged(c.#))
  union all
  select 'days = hours', concat_ws('/', account_id, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, h.amount, u.requests, h.requests)
  from usage_daily u
  full join summed_days h using (account_id, key_id, model, day)
  cross join usage_progress g
  where day >= g.hours_from and day < g.closed_to
    and (each_sum(u.#)) is distinct from (each_sum(h.#))
  union all
  select 'tags of days = charges', concat_ws('/', account_id, tag, value, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from tags_daily u
  full join charged_tags c using (account_id, tag, value, key_id, model, day)
  cross join usage_progress g
  where (u.amount is not null or day < g.tags_to) and day >= (select day from open_from)
    and (each_charged(u.#)) is distinct from (each_charged(c.#))
  union all
  select 'days = closed months', concat_ws('/', account_id, key_id, model, month),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, key_id, model, date_trunc('month', day)::date as month,
      each_charged(sum(#) as #)
    from usage_daily
    where day < (select day from open_from)
    group by 1, 2, 3, 4
  ) u
  full join (
    select account_id, key_id, model, month, each_charged(sum(#) as #)
    from closed_months
    group by 1, 2, 3, 4
  ) c using (account_id, key_id, model, month)
  where (each_charged(u.#)) is distinct from (each_charged(c.#))
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
    select account_id, key_id, model, hour::text as at, each_sum(#) from usage_hourly
    union all
    select account_id, key_id, model, day::text, each_sum(#) from usage_daily
  ) sums
  where amount <> amount_input + amount_output + amount_cache + amount_thinking
    or requests <> completed + failed + cut
    or requests < first_event_1 + first_event_2 + first_event_3 + first_event_4 + first_event_5
      + first_event_6 + first_event_7 + first_event_8 + first_event_9 + first_event_10
    or least(each_sum(#)) < 0
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
select invariant, subject, detail
from (
  select *, row_number() over (partition by invariant order by subject) as position from checks
) numbered
where position <= 100
order by invariant, subject;
