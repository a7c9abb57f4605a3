// Made of src/sales/sql by `npm run generate`. Do not edit.

import { type Json, type Many, many, type One, one, type Run, run } from "../../src/postgres/statement.ts";

// reports.sql

/**
 * Lets all statements of the transaction see the same rows.
 */
export const beginSnapshot: Run<undefined> = run(
  "sales/begin-snapshot",
  `-- sales/begin-snapshot
set transaction isolation level repeatable read, read only`,
  () => [],
  30000,
);

export type QuerySalesRow = { bucket: string; accountId: string; model: string; provider: string; family: "v1" | "v2" | ""; requests: bigint; uncosted: bigint; uncostedAmount: bigint; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearches: bigint; amount: bigint; overrun: bigint; costPico: string };
/**
 * Sums of charges by time and by what else is asked for, after a row and in the order of the
 * groups.
 * `span`: `total` reads sums of all accounts, `day` those of each
 * `byMonths`: of these, whole months are read at once
 * `monthsFrom`: the first day of the first whole month
 * `monthsTo`: the day after the last one
 * `bucket`: day, week, month or none, in which all times are one
 * `start`: the first day, for none
 * `to`: the day after the last one
 * `accounts`: only these; empty: all, as of models, providers and families
 * `after`: null: from the first row on
 */
export const querySales: Many<{ bucket: string; start: string; byAccount: boolean; byModel: boolean; byProvider: boolean; byFamily: boolean; from: string; to: string; byMonths: boolean; monthsFrom: string; monthsTo: string; span: string; accounts: readonly string[]; models: readonly string[]; providers: readonly string[]; families: readonly string[]; after: string | null; afterAccount: string; afterModel: string; afterProvider: string; afterFamily: string; rows: bigint | number }, QuerySalesRow> = many(
  "sales/query-sales",
  `-- sales/query-sales
with groups as (
  select case when $1::text = 'none' then $2::date
      else date_trunc($1, day::timestamp)::date end as bucket,
    case when $3::boolean then account_id else '' end as account_id,
    case when $4::boolean then model else '' end as model,
    case when $5::boolean then provider else '' end as provider,
    case when $6::boolean then "family" else '' end as "family",
    sum(requests)::bigint as requests, sum(uncosted)::bigint as uncosted,
    coalesce(sum(amount) filter (where uncosted > 0), 0)::bigint as uncosted_amount,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount, sum(overrun)::bigint as overrun, sum(cost_pico) as cost_pico
  from sales_sums
  where day >= $7::date and day < $8::date
    and (span = 'month' and $9::boolean and day >= $10::date
        and day < $11::date
      or span = $12 and not ($9 and day >= $10 and day < $11))
    and (cardinality($13::text[]) = 0 or account_id = any ($13))
    and (cardinality($14::text[]) = 0 or model = any ($14))
    and (cardinality($15::text[]) = 0 or provider = any ($15))
    and (cardinality($16::text[]) = 0 or "family" = any ($16))
  group by 1, 2, 3, 4, 5
)
select bucket as bucket, account_id as account_id, model as model,
  provider as provider, "family" as "family", requests as requests,
  uncosted as uncosted, uncosted_amount as uncosted_amount, input as input,
  output as output, thinking as thinking, cache_write_5m as cache_write_5m,
  cache_write_1h as cache_write_1h, cache_read as cache_read,
  web_searches as web_searches, amount as amount, overrun as overrun,
  cost_pico as cost_pico
from groups
where $17::text is null
  or (bucket::text, account_id, model, provider, "family")
    > ($17, $18, $19, $20, $21)
order by bucket, account_id collate "C", model collate "C", provider collate "C", "family"
limit $22`,
  (p) => [p.bucket, p.start, p.byAccount, p.byModel, p.byProvider, p.byFamily, p.from, p.to, p.byMonths, p.monthsFrom, p.monthsTo, p.span, p.accounts, p.models, p.providers, p.families, p.after, p.afterAccount, p.afterModel, p.afterProvider, p.afterFamily, p.rows],
  (v) => ({ bucket: v[0], accountId: v[1], model: v[2], provider: v[3], family: v[4], requests: v[5], uncosted: v[6], uncostedAmount: v[7], input: v[8], output: v[9], thinking: v[10], cacheWrite5m: v[11], cacheWrite1h: v[12], cacheRead: v[13], webSearches: v[14], amount: v[15], overrun: v[16], costPico: v[17] }) as never,
  "",
  30000,
);

export type SumGiftsRow = { bonus: bigint; adjustment: bigint };
/**
 * Credits that operators and promotions gave and took in a range.
 */
export const sumGifts: One<{ from: Date | string; to: Date | string }, SumGiftsRow> = one(
  "sales/sum-gifts",
  `-- sales/sum-gifts
select
  coalesce(sum(amount) filter (where kind = 'bonus'), 0)::bigint as bonus,
  coalesce(sum(amount) filter (where kind = 'adjustment'), 0)::bigint as adjustment
from transfers
where created_at >= $1 and created_at < $2`,
  (p) => [p.from, p.to],
  (v) => ({ bonus: v[0], adjustment: v[1] }) as never,
  "",
  30000,
);

export type SumDocumentsRow = { bucket: string; pack: bigint; asset: string; network: string; processor: string; kind: string; orders: bigint; paidMicro: bigint; refundedMicro: bigint; lostMicro: bigint };
/**
 * What documents of a range say of money, by time and by what else is asked for: a receipt says
 * what was paid at the rate of its order, a credit note what went back or was lost. What is granted
 * for an order after its receipt counts when it is. Money that goes back counts as far as it was
 * granted: the rest never was revenue.
 * `bucket`: day, week, month or none
 */
export const sumDocuments: Many<{ from: Date | string; to: Date | string; bucket: string; byPack: boolean; byAsset: boolean; byNetwork: boolean; byProcessor: boolean; byKind: boolean }, SumDocumentsRow> = many(
  "sales/sum-documents",
  `-- sales/sum-documents
with documents as (
  select order_id, issued_at as at, 1 as orders, 0::bigint as paid, 0::bigint as refunded,
    0::bigint as lost
  from payment_documents
  where kind = 'receipt' and issued_at >= $1 and issued_at < $2
  union all
  select order_id, created_at, 0, micro / 200, 0, 0
  from payment_grants
  where micro > 0 and created_at >= $1 and created_at < $2
  union all
  select d.order_id, d.issued_at, 0, 0, coalesce(r.micro / 200, 0), coalesce(-g.micro / 200, 0)
  from payment_documents d
  left join payment_grants g on g.order_id = d.order_id and g.n = d.grant_n
  left join payment_refunds r on r.order_id = d.order_id and r.n = d.refund_n
  where d.kind = 'credit_note' and d.issued_at >= $1 and d.issued_at < $2
)
select (case when $3::text = 'none' then $1::timestamptz
    else date_trunc($3, d.at, 'UTC') end at time zone 'utc')::date as bucket,
  case when $4::boolean and o.kind = 'pack' then o.usd_micro else 0 end as pack,
  case when $5::boolean then o.asset else '' end as asset,
  case when $6::boolean then o.network else '' end as network,
  case when $7::boolean then o.processor else '' end as processor,
  case when $8::boolean then o.kind else '' end as kind,
  sum(d.orders)::bigint as orders, sum(d.paid)::bigint as paid_micro,
  sum(d.refunded)::bigint as refunded_micro, sum(d.lost)::bigint as lost_micro
from documents d
join payment_orders o on o.order_id = d.order_id
group by 1, 2, 3, 4, 5, 6
order by 1, 2, 3, 4, 5, 6`,
  (p) => [p.from, p.to, p.bucket, p.byPack, p.byAsset, p.byNetwork, p.byProcessor, p.byKind],
  (v) => ({ bucket: v[0], pack: v[1], asset: v[2], network: v[3], processor: v[4], kind: v[5], orders: v[6], paidMicro: v[7], refundedMicro: v[8], lostMicro: v[9] }) as never,
  "",
  30000,
);

export type SumCoinsRow = { bucket: string; pack: bigint; asset: string; network: string; processor: string; kind: string; coin: string; decimals: number; atoms: string };
/**
 * The coins that arrived for orders with a receipt, in the same groups: each when it was settled,
 * or when its order got the receipt. One that is lost later stays where it is.
 * `bucket`: day, week, month or none
 */
export const sumCoins: Many<{ to: Date | string; from: Date | string; bucket: string; byPack: boolean; byAsset: boolean; byNetwork: boolean; byProcessor: boolean; byKind: boolean }, SumCoinsRow> = many(
  "sales/sum-coins",
  `-- sales/sum-coins
with arrived as (
  select p.order_id, p.asset, p.decimals, p.atoms, greatest(p.settled_at, d.issued_at) as at
  from payment_deposits p
  join payment_documents d on d.order_id = p.order_id and d.kind = 'receipt'
  where p.settled_at is not null and p.settled_at < $1::timestamptz and d.issued_at < $1
    and (p.settled_at >= $2 or d.issued_at >= $2)
)
select (case when $3::text = 'none' then $2::timestamptz
    else date_trunc($3, a.at, 'UTC') end at time zone 'utc')::date as bucket,
  case when $4::boolean and o.kind = 'pack' then o.usd_micro else 0 end as pack,
  case when $5::boolean then o.asset else '' end as asset,
  case when $6::boolean then o.network else '' end as network,
  case when $7::boolean then o.processor else '' end as processor,
  case when $8::boolean then o.kind else '' end as kind,
  a.asset as coin, a.decimals as decimals, sum(a.atoms) as atoms
from arrived a
join payment_orders o on o.order_id = a.order_id
group by 1, 2, 3, 4, 5, 6, 7, 8
order by 1, 2, 3, 4, 5, 6, 7, 8`,
  (p) => [p.to, p.from, p.bucket, p.byPack, p.byAsset, p.byNetwork, p.byProcessor, p.byKind],
  (v) => ({ bucket: v[0], pack: v[1], asset: v[2], network: v[3], processor: v[4], kind: v[5], coin: v[6], decimals: v[7], atoms: v[8] }) as never,
  "",
  30000,
);

export type ListLiabilitiesRow = { family: "v1" | "v2"; day: string; owed: bigint; debts: bigint; charged: bigint; added: Json };
/**
 * What the pools of a family had posted at the end of each UTC day of a range, those in debt apart,
 * and what changed it on that day. Counted back from what they have posted now, so that it reads
 * only what came after: a charge counts on the day of its admission. Charges of closed days come
 * from the sums of sales, which have them three days after the day began; of months whose charges
 * were removed before there were such sums, from the days of the usage.
 * `to`: the day after the last one
 */
export const listLiabilities: Many<{ to: string; from: string }, ListLiabilitiesRow> = many(
  "sales/list-liabilities",
  `-- sales/list-liabilities
with bounds as (
  select g.closed_to,
    least(g.closed_to, case when not s.is_emptying and s.complete_to > '-infinity'
      then (s.complete_to at time zone 'utc')::date - 3 else '-infinity' end) as sums_to,
    coalesce((
      select (max(a.month) + interval '1 month')::date
      from month_archives a
      where a.dropped_at is not null
        and not exists (select from sales_monthly m where m.month = a.month)
    ), '-infinity') as sums_from
  from usage_progress g
  cross join sales_progress s
), charged_days as (
  select "family", least(day, $1::date) as day, sum(amount) as amount
  from (
    select t."family" collate "C" as "family", t.day, t.amount
    from sales_totals t
    where t.day >= greatest($2::date, (select sums_from from bounds))
      and t.day < (select sums_to from bounds)
    union all
    select k."family" collate "C", d.day, d.amount
    from usage_daily d
    join keys k on k.key_id = d.key_id
    where d.day >= greatest($2::date, (select sums_to from bounds))
      and d.day < (select closed_to from bounds)
    union all
    select k."family" collate "C", d.day, d.amount
    from usage_daily d
    join keys k on k.key_id = d.key_id
    where d.day >= $2::date
      and d.day < (select least(sums_from, sums_to, closed_to) from bounds)
    union all
    select k."family" collate "C", (h.hour at time zone 'utc')::date, h.amount
    from usage_hourly h
    join keys k on k.key_id = h.key_id
    where h.key_id >= ''
      and h.hour >= greatest($2::date, (select closed_to from bounds))::timestamp
        at time zone 'utc'
  ) parts
  group by 1, 2
), transferred as (
  select "family" collate "C" as "family",
    least((created_at at time zone 'utc')::date, $1::date) as day, kind, sum(amount) as amount
  from transfers
  where created_at >= ($2::date)::timestamp at time zone 'utc'
  group by 1, 2, 3
), added_days as (
  select "family", day, jsonb_object_agg(kind, amount::text) as kinds, sum(amount) as amount
  from transferred
  group by 1, 2
), days as (
  select f."family", d.day::date as day
  from (values ('v1' collate "C"), ('v2' collate "C")) f ("family")
  cross join generate_series($2::date, $1::date, interval '1 day') d (day)
), ends as (
  -- Of all pools, at the end of each day. The day after the range has all that came after it.
  select d."family", d.day, coalesce(c.amount, 0) as charged,
    coalesce(a.kinds, '{}'::jsonb) as added,
    coalesce(p.posted, 0) - coalesce(sum(coalesce(a.amount, 0) - coalesce(c.amount, 0)) over (
      partition by d."family" order by d.day desc
      rows between unbounded preceding and 1 preceding), 0) as posted
  from days d
  left join (
    select "family" collate "C" as "family", sum(posted) as posted from pools group by 1
  ) p using ("family")
  left join charged_days c using ("family", day)
  left join added_days a using ("family", day)
), indebted as (
  -- Only a transfer ends a debt: so a pool that had one has it still, or a transfer has found it.
  select account_id, "family" from pools where posted < 0
  union
  select account_id, "family"
  from transfers
  where created_at >= ($2::date)::timestamp at time zone 'utc'
    and least(posted_after, posted_after - amount) < 0
), changes as (
  select account_id, "family", least(day, $1::date) as day, sum(amount) as amount
  from (
    select t.account_id, t."family", (t.created_at at time zone 'utc')::date as day, t.amount
    from indebted i
    join transfers t on t.account_id = i.account_id and t."family" = i."family"
    where t.created_at >= ($2::date)::timestamp at time zone 'utc'
    union all
    select k.account_id, k."family", d.day, -d.amount
    from indebted i
    join keys k on k.account_id = i.account_id and k."family" = i."family"
    join usage_daily d on d.account_id = k.account_id and d.key_id = k.key_id
    where d.day >= $2::date and d.day < (select closed_to from bounds)
    union all
    select k.account_id, k."family", (h.hour at time zone 'utc')::date, -h.amount
    from indebted i
    join keys k on k.account_id = i.account_id and k."family" = i."family"
    join usage_hourly h on h.account_id = k.account_id and h.key_id = k.key_id
    where h.hour >= greatest($2::date, (select closed_to from bounds))::timestamp
      at time zone 'utc'
  ) parts
  group by 1, 2, 3
), debts as (
  select "family" collate "C" as "family", day, -sum(posted) as amount
  from (
    select p."family", d.day,
      p.posted - coalesce(sum(coalesce(c.amount, 0)) over (
        partition by p.account_id, p."family" order by d.day desc
        rows between unbounded preceding and 1 preceding), 0) as posted
    from indebted i
    join pools p on p.account_id = i.account_id and p."family" = i."family"
    cross join generate_series($2::date, $1::date, interval '1 day') d (day)
    left join changes c on c.account_id = p.account_id and c."family" = p."family"
      and c.day = d.day::date
  ) each_pool
  where posted < 0
  group by 1, 2
)
select e."family" as "family", e.day as day, (e.posted + coalesce(n.amount, 0))::bigint
    as owed,
  coalesce(n.amount, 0)::bigint as debts, e.charged::bigint as charged, e.added as added
from ends e
left join debts n on n."family" = e."family" and n.day::date = e.day
where e.day < $1::date
order by e.day, e."family"`,
  (p) => [p.to, p.from],
  (v) => ({ family: v[0], day: v[1], owed: v[2], debts: v[3], charged: v[4], added: v[5] }) as never,
  "",
  30000,
);

/**
 * Stores what a provider billed for a month, in place of what was stored before.
 */
export const setBill: Run<{ provider: string; month: string; usdMicro: bigint | number; note: string; setBy: string }> = run(
  "sales/set-bill",
  `-- sales/set-bill
insert into provider_bills (provider, month, usd_micro, note, set_by)
values ($1, $2::date, $3, $4, $5)
on conflict (provider, month) do update
set usd_micro = excluded.usd_micro, note = excluded.note, set_by = excluded.set_by,
  set_at = excluded.set_at`,
  (p) => [p.provider, p.month, p.usdMicro, p.note, p.setBy],
  30000,
);

export type ListBillsRow = { provider: string; month: string; costPico: string; requests: bigint; uncosted: bigint; usdMicro: bigint | null; note: string | null; setBy: string | null; setAt: Date | null };
/**
 * What each provider cost in each month by the sums, and what it billed. Null: nobody said.
 * `to`: the day after the last one
 */
export const listBills: Many<{ from: string; to: string }, ListBillsRow> = many(
  "sales/list-bills",
  `-- sales/list-bills
with computed as (
  select provider, date_trunc('month', day::timestamp)::date as month,
    sum(cost_pico) as cost_pico, sum(requests)::bigint as requests,
    sum(uncosted)::bigint as uncosted
  from sales_totals
  where day >= $1::date and day < $2::date and provider <> ''
  group by 1, 2
)
select provider as provider, month as month, coalesce(c.cost_pico, 0) as cost_pico,
  coalesce(c.requests, 0) as requests, coalesce(c.uncosted, 0) as uncosted,
  b.usd_micro as usd_micro, b.note as note, b.set_by as set_by, b.set_at as set_at
from computed c
full join (
  select provider, month, usd_micro, note, set_by, set_at
  from provider_bills
  where month >= $1::date and month < $2::date
) b using (provider, month)
order by month, provider`,
  (p) => [p.from, p.to],
  (v) => ({ provider: v[0], month: v[1], costPico: v[2], requests: v[3], uncosted: v[4], usdMicro: v[5], note: v[6], setBy: v[7], setAt: v[8] }) as never,
  "usdMicro note setBy setAt",
  30000,
);

export type ReadSalesCompletenessRow = { completeTo: Date | null };
/**
 * The time up to which every settled charge is in the sums. Null: they are being written anew.
 */
export const readSalesCompleteness: One<undefined, ReadSalesCompletenessRow> = one(
  "sales/read-sales-completeness",
  `-- sales/read-sales-completeness
select case when is_emptying then null else nullif(complete_to, '-infinity') end as complete_to
from sales_progress`,
  () => [],
  (v) => ({ completeTo: v[0] }) as never,
  "completeTo",
  30000,
);

// rollup.sql

/**
 * Stores a cost version, unless it is stored already.
 * `above`: null: no other version counts
 */
export const registerCost: Run<{ costVersion: string; provider: string; model: string; input: bigint | number; output: bigint | number; thinking: bigint | number; cacheWrite5m: bigint | number; cacheWrite1h: bigint | number; cacheRead: bigint | number; webSearch: bigint | number; above: number | null; aboveVersion: string | null }> = run(
  "sales/register-cost",
  `-- sales/register-cost
insert into cost_versions (cost_version, provider, model, input, output, thinking, cache_write_5m,
  cache_write_1h, cache_read, web_search, above, above_version)
values ($1, $2, $3, $4, $5, $6, $7,
  $8, $9, $10, $11, $12)
on conflict do nothing`,
  (p) => [p.costVersion, p.provider, p.model, p.input, p.output, p.thinking, p.cacheWrite5m, p.cacheWrite1h, p.cacheRead, p.webSearch, p.above, p.aboveVersion],
  30000,
);

export type LockSalesProgressRow = { settledAt: string; requestId: string; accountId: string; isEmptying: boolean };
/**
 * Reads how far the charges are in the sums, and keeps it from changing until the end of the
 * transaction.
 */
export const lockSalesProgress: One<undefined, LockSalesProgressRow> = one(
  "sales/lock-sales-progress",
  `-- sales/lock-sales-progress
select settled_at::text as settled_at, request_id, account_id, is_emptying
from sales_progress
for update`,
  () => [],
  (v) => ({ settledAt: v[0], requestId: v[1], accountId: v[2], isEmptying: v[3] }) as never,
  "",
  30000,
);

export type AddPageRow = { charges: number; settledAt: string | null; requestId: string | null; accountId: string | null };
/**
 * Adds the next charges, in the order of their settlement, to the sums of their time, and returns
 * their number and the last of them. The cost of a charge is that of its last attempt, by the
 * version that its prompt demands, and covers what is not charged: tokens beyond the grant too. It
 * is a numeric: one that somebody mistyped passes 64 bits. A version that is not stored has none.
 * `settledAt`: after this charge, as the request and the account
 * `marginMs`: settled so long before `until`
 */
export const addPage: One<{ settledAt: Date | string; requestId: string; accountId: string; until: Date | string; marginMs: number; rows: bigint | number }, AddPageRow> = one(
  "sales/add-page",
  `-- sales/add-page
with page as materialized (
  select c.account_id, c.request_id, c.settled_at, c.admitted_at, c."family", c.model, c.input,
    c.output, c.thinking, c.cache_write_5m, c.cache_write_1h, c.cache_read, c.web_searches,
    c.output_over, c.thinking_over, c.amount, c.overrun, c.attempts -> -1 as attempt,
    c.input::bigint + c.cache_read + c.cache_write_5m + c.cache_write_1h as prompt
  from charges c
  where c.amount >= 0
    and (c.settled_at, c.request_id, c.account_id)
      > ($1::timestamptz, $2, $3)
    and c.settled_at < $4::timestamptz - $5::integer * interval '1 millisecond'
  order by c.settled_at, c.request_id, c.account_id
  limit $6
), costed as (
  select p.account_id, (p.admitted_at at time zone 'utc')::date as day, p."family", p.model,
    coalesce(p.attempt ->> 'provider', '') as provider,
    coalesce(k.cost_version, '') as cost_version,
    k.cost_version is null and p.prompt + p.output + p.thinking + p.output_over + p.thinking_over
      + p.web_searches > 0 as is_uncosted,
    p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
    p.web_searches, p.amount, p.overrun,
    coalesce(p.input::numeric * k.input + (p.output::numeric + p.output_over) * k.output
      + (p.thinking::numeric + p.thinking_over) * k.thinking
      + p.cache_write_5m::numeric * k.cache_write_5m + p.cache_write_1h::numeric * k.cache_write_1h
      + p.cache_read::numeric * k.cache_read + p.web_searches::numeric * k.web_search, 0)
      as cost_pico
  from page p
  left join cost_versions k0 on k0.cost_version = p.attempt ->> 'costVersion'
  left join cost_versions k1 on k1.cost_version = k0.above_version and p.prompt > k0.above
  left join cost_versions k2 on k2.cost_version = k1.above_version and p.prompt > k1.above
  left join cost_versions k3 on k3.cost_version = k2.above_version and p.prompt > k2.above
  left join cost_versions k on k.cost_version = case
    when p.prompt > k2.above then k3.cost_version when p.prompt > k1.above then k2.cost_version
    when p.prompt > k0.above then k1.cost_version else k0.cost_version end
), days as (
  select day, account_id, "family", model, provider, cost_version, count(*) as requests,
    count(*) filter (where is_uncosted) as uncosted, sum(input) as input, sum(output) as output,
    sum(thinking) as thinking, sum(cache_write_5m) as cache_write_5m,
    sum(cache_write_1h) as cache_write_1h, sum(cache_read) as cache_read,
    sum(web_searches) as web_searches, sum(amount) as amount, sum(overrun) as overrun,
    sum(cost_pico) as cost_pico
  from costed
  group by day, account_id, "family", model, provider, cost_version
), added_days as (
  insert into sales_daily (day, account_id, "family", model, provider, cost_version, requests,
    uncosted, input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, overrun, cost_pico)
  select day, account_id, "family", model, provider, cost_version, requests,
    uncosted, input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, overrun, cost_pico
  from days
  order by day, account_id, "family", model, provider, cost_version
  on conflict (day, account_id, "family", model, provider, cost_version) do update
  set requests = sales_daily.requests + excluded.requests,
    uncosted = sales_daily.uncosted + excluded.uncosted,
    input = sales_daily.input + excluded.input, output = sales_daily.output + excluded.output,
    thinking = sales_daily.thinking + excluded.thinking,
    cache_write_5m = sales_daily.cache_write_5m + excluded.cache_write_5m,
    cache_write_1h = sales_daily.cache_write_1h + excluded.cache_write_1h,
    cache_read = sales_daily.cache_read + excluded.cache_read,
    web_searches = sales_daily.web_searches + excluded.web_searches,
    amount = sales_daily.amount + excluded.amount,
    overrun = sales_daily.overrun + excluded.overrun,
    cost_pico = sales_daily.cost_pico + excluded.cost_pico
), added_months as (
  insert into sales_monthly (month, account_id, "family", model, provider, cost_version, requests,
    uncosted, input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, overrun, cost_pico)
  select date_trunc('month', day::timestamp)::date, account_id, "family", model, provider,
    cost_version, sum(requests), sum(uncosted), sum(input),
    sum(output), sum(thinking), sum(cache_write_5m), sum(cache_write_1h), sum(cache_read),
    sum(web_searches), sum(amount), sum(overrun), sum(cost_pico)
  from days
  group by 1, 2, 3, 4, 5, 6
  order by 1, 2, 3, 4, 5, 6
  on conflict (month, account_id, "family", model, provider, cost_version) do update
  set requests = sales_monthly.requests + excluded.requests,
    uncosted = sales_monthly.uncosted + excluded.uncosted,
    input = sales_monthly.input + excluded.input, output = sales_monthly.output + excluded.output,
    thinking = sales_monthly.thinking + excluded.thinking,
    cache_write_5m = sales_monthly.cache_write_5m + excluded.cache_write_5m,
    cache_write_1h = sales_monthly.cache_write_1h + excluded.cache_write_1h,
    cache_read = sales_monthly.cache_read + excluded.cache_read,
    web_searches = sales_monthly.web_searches + excluded.web_searches,
    amount = sales_monthly.amount + excluded.amount,
    overrun = sales_monthly.overrun + excluded.overrun,
    cost_pico = sales_monthly.cost_pico + excluded.cost_pico
), added_totals as (
  insert into sales_totals (day, "family", model, provider, cost_version, requests,
    uncosted, input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, overrun, cost_pico)
  select day, "family", model, provider, cost_version, sum(requests), sum(uncosted), sum(input),
    sum(output), sum(thinking), sum(cache_write_5m), sum(cache_write_1h), sum(cache_read),
    sum(web_searches), sum(amount), sum(overrun), sum(cost_pico)
  from days
  group by day, "family", model, provider, cost_version
  order by day, "family", model, provider, cost_version
  on conflict (day, "family", model, provider, cost_version) do update
  set requests = sales_totals.requests + excluded.requests,
    uncosted = sales_totals.uncosted + excluded.uncosted,
    input = sales_totals.input + excluded.input, output = sales_totals.output + excluded.output,
    thinking = sales_totals.thinking + excluded.thinking,
    cache_write_5m = sales_totals.cache_write_5m + excluded.cache_write_5m,
    cache_write_1h = sales_totals.cache_write_1h + excluded.cache_write_1h,
    cache_read = sales_totals.cache_read + excluded.cache_read,
    web_searches = sales_totals.web_searches + excluded.web_searches,
    amount = sales_totals.amount + excluded.amount,
    overrun = sales_totals.overrun + excluded.overrun,
    cost_pico = sales_totals.cost_pico + excluded.cost_pico
)
select count(*)::integer as charges, max(settled_at)::text as settled_at,
  (array_agg(request_id order by settled_at, request_id, account_id))[count(*)::integer]
    as request_id,
  (array_agg(account_id order by settled_at, request_id, account_id))[count(*)::integer]
    as account_id
from page`,
  (p) => [p.settledAt, p.requestId, p.accountId, p.until, p.marginMs, p.rows],
  (v) => ({ charges: v[0], settledAt: v[1], requestId: v[2], accountId: v[3] }) as never,
  "settledAt requestId accountId",
  30000,
);

/**
 * Records that charges are in the sums, up to this one, and all that were settled before it.
 */
export const moveSalesProgress: Run<{ settledAt: Date | string; requestId: string; accountId: string }> = run(
  "sales/move-sales-progress",
  `-- sales/move-sales-progress
update sales_progress
set settled_at = $1::timestamptz, request_id = $2, account_id = $3,
  complete_to = greatest(complete_to, $1::timestamptz)`,
  (p) => [p.settledAt, p.requestId, p.accountId],
  30000,
);

/**
 * Records that every charge is in the sums that was settled so long before a time.
 */
export const completeSales: Run<{ until: Date | string; marginMs: number }> = run(
  "sales/complete-sales",
  `-- sales/complete-sales
update sales_progress
set complete_to = greatest(complete_to,
  $1::timestamptz - $2::integer * interval '1 millisecond')
where not is_emptying`,
  (p) => [p.until, p.marginMs],
  30000,
);

/**
 * Lets the sums be removed and written anew.
 */
export const beginEmptying: Run<undefined> = run(
  "sales/begin-emptying",
  `-- sales/begin-emptying
update sales_progress
set is_emptying = true, complete_to = '-infinity'`,
  () => [],
  30000,
);

export type RemoveSalesRow = { removed: number };
/**
 * Removes some of the sums of each table, but those of months whose charges are gone, and returns
 * the most that were removed of one.
 */
export const removeSales: One<{ rows: bigint | number }, RemoveSalesRow> = one(
  "sales/remove-sales",
  `-- sales/remove-sales
with kept as (
  select month from month_archives where dropped_at is not null
), removed_days as (
  delete from sales_daily
  where ctid = any (array (
    select ctid from sales_daily s
    where not exists (
      select from kept k where k.month = date_trunc('month', s.day::timestamp)::date)
    limit $1))
  returning day
), removed_months as (
  delete from sales_monthly
  where ctid = any (array (
    select ctid from sales_monthly s
    where not exists (select from kept k where k.month = s.month)
    limit $1))
  returning month
), removed_totals as (
  delete from sales_totals
  where ctid = any (array (
    select ctid from sales_totals s
    where not exists (
      select from kept k where k.month = date_trunc('month', s.day::timestamp)::date)
    limit $1))
  returning day
)
select greatest((select count(*) from removed_days), (select count(*) from removed_months),
  (select count(*) from removed_totals))::integer as removed`,
  (p) => [p.rows],
  (v) => ({ removed: v[0] }) as never,
  "",
  30000,
);

/**
 * Lets the charges be added from the first one on: those that are still there.
 */
export const endEmptying: Run<undefined> = run(
  "sales/end-emptying",
  `-- sales/end-emptying
update sales_progress
set is_emptying = false, settled_at = '-infinity', request_id = '', account_id = '',
  complete_to = '-infinity'`,
  () => [],
  30000,
);

export type CountSalesRow = { now: Date; charges: bigint };
/**
 * The time, and the number of charges in all sums.
 */
export const countSales: One<undefined, CountSalesRow> = one(
  "sales/count-sales",
  `-- sales/count-sales
select now() as now, coalesce(sum(requests), 0)::bigint as charges
from sales_totals`,
  () => [],
  (v) => ({ now: v[0], charges: v[1] }) as never,
  "",
  30000,
);

export type ReadSalesProgressRow = { isEmptying: boolean; completeTo: Date | null; isComplete: boolean; lagSeconds: number | null };
/**
 * How far the sums are, whether they have every charge that was settled before a time, and the
 * seconds since the first charge was settled that they lack. Null: they lack none, or are being
 * removed.
 */
export const readSalesProgress: One<{ since: Date | string }, ReadSalesProgressRow> = one(
  "sales/read-sales-progress",
  `-- sales/read-sales-progress
select p.is_emptying as is_emptying, nullif(p.complete_to, '-infinity') as complete_to,
  p.complete_to >= $1::timestamptz as is_complete,
  (select extract(epoch from now() - c.settled_at)::float8
   from charges c
   where c.amount >= 0
     and (c.settled_at, c.request_id, c.account_id)
       > (p.settled_at, p.request_id, p.account_id)
   order by c.settled_at, c.request_id
   limit 1) as lag_seconds
from sales_progress p`,
  (p) => [p.since],
  (v) => ({ isEmptying: v[0], completeTo: v[1], isComplete: v[2], lagSeconds: v[3] }) as never,
  "completeTo lagSeconds",
  30000,
);
