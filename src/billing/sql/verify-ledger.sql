-- Checks every invariant of the ledger. Each row is a violation, at most 100 per invariant; no rows
-- means that all invariants hold.
with checks (invariant, subject, detail) as (
  select 'posted = transfers - charges', p.account_id || '/' || p."family",
    format('posted %s, transfers %s, charges %s',
      p.posted, coalesce(t.amount, 0), coalesce(c.amount, 0))
  from pools p
  left join (
    select account_id, "family", sum(amount) as amount from transfers group by account_id, "family"
  ) t using (account_id, "family")
  left join (
    select account_id, "family", sum(amount) as amount from charges group by account_id, "family"
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
  select 'month = its charges and holds',
    concat_ws('/', account_id, key_id) || '/' || month,
    format('spent %s, charges %s, held %s, holds %s', m.spent, x.spent, m.held, x.held)
  from key_months m
  full join (
    select account_id, key_id, month, sum(spent) as spent, sum(held) as held
    from (
      select account_id, key_id, month, amount as spent, 0 as held from charges
      union all
      select account_id, key_id, month, 0, amount from holds
    ) parts
    group by account_id, key_id, month
  ) x using (account_id, key_id, month)
  where coalesce(m.spent, 0) <> coalesce(x.spent, 0) or coalesce(m.held, 0) <> coalesce(x.held, 0)
  union all
  select 'charge <= hold', account_id || '/' || request_id,
    format('amount %s, hold %s', amount, hold)
  from charges
  where amount > hold or amount < 0
  union all
  select 'never hold and charge', account_id || '/' || request_id, ''
  from holds
  join charges using (account_id, request_id)
  union all
  select 'one charge per request', account_id || '/' || request_id, format('%s charges', count(*))
  from charges
  group by account_id, request_id
  having count(*) > 1
  union all
  select 'charge = tokens x price', c.account_id || '/' || c.request_id,
    format('amount %s, overrun %s, price %s', c.amount, c.overrun, c.price_version)
  from charges c
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
  from charges
  where output::bigint + thinking > granted_output
    or output_over::bigint + thinking_over > 0 and output::bigint + thinking < granted_output
  union all
  select 'roll-ups = charges', concat_ws('/', account_id, key_id, model, hour),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from usage_hourly u
  full join (
    select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC') as hour,
      sum(amount) as amount, count(*) as requests, each_category(sum(#) as #)
    from charges
    group by 1, 2, 3, 4
  ) c using (account_id, key_id, model, hour)
  where (u.amount, u.requests, each_category(u.#))
    is distinct from (c.amount, c.requests, each_category(c.#))
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
)
select invariant, subject, detail
from (
  select *, row_number() over (partition by invariant order by subject) as position from checks
) numbered
where position <= 100
order by invariant, subject;
