-- timeout_ms=30000

-- name: BeginSnapshot :run
-- Lets all statements of the transaction see the same rows.
set transaction isolation level repeatable read, read only;

-- name: QuerySales :many
-- Sums of charges by time and by what else is asked for, after a row and in the order of the
-- groups.
-- :span  `total` reads sums of all accounts, `day` those of each
-- :by_months  of these, whole months are read at once
-- :months_from  the first day of the first whole month
-- :months_to  the day after the last one
-- :bucket  day, week, month or none, in which all times are one
-- :start  the first day, for none
-- :to  the day after the last one
-- :accounts  only these; empty: all, as of models, providers and families
-- :after?  null: from the first row on
-- =family 'v1' | 'v2' | ''
with groups as (
  select case when :bucket::text = 'none' then :start::date
      else date_trunc(:bucket, day::timestamp)::date end as bucket,
    case when :by_account::boolean then account_id else '' end as account_id,
    case when :by_model::boolean then model else '' end as model,
    case when :by_provider::boolean then provider else '' end as provider,
    case when :by_family::boolean then "family" else '' end as "family",
    sum(requests)::bigint as requests, sum(uncosted)::bigint as uncosted,
    coalesce(sum(amount) filter (where uncosted > 0), 0)::bigint as uncosted_amount,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount, sum(overrun)::bigint as overrun, sum(cost_pico) as cost_pico
  from sales_sums
  where day >= :from::date and day < :to::date
    and (span = 'month' and :by_months::boolean and day >= :months_from::date
        and day < :months_to::date
      or span = :span and not (:by_months and day >= :months_from and day < :months_to))
    and (cardinality(:accounts::text[]) = 0 or account_id = any (:accounts))
    and (cardinality(:models::text[]) = 0 or model = any (:models))
    and (cardinality(:providers::text[]) = 0 or provider = any (:providers))
    and (cardinality(:families::text[]) = 0 or "family" = any (:families))
  group by 1, 2, 3, 4, 5
)
select bucket as "bucket!", account_id as "account_id!", model as "model!",
  provider as "provider!", "family" as "family!", requests as "requests!",
  uncosted as "uncosted!", uncosted_amount as "uncosted_amount!", input as "input!",
  output as "output!", thinking as "thinking!", cache_write_5m as "cache_write_5m!",
  cache_write_1h as "cache_write_1h!", cache_read as "cache_read!",
  web_searches as "web_searches!", amount as "amount!", overrun as "overrun!",
  cost_pico as "cost_pico!"
from groups
where :after::text is null
  or (bucket::text, account_id, model, provider, "family")
    > (:after, :after_account, :after_model, :after_provider, :after_family)
order by bucket, account_id collate "C", model collate "C", provider collate "C", "family"
limit :rows;

-- name: SumGifts :one
-- Credits that operators and promotions gave and took in a range.
select
  coalesce(sum(amount) filter (where kind = 'bonus'), 0)::bigint as "bonus!",
  coalesce(sum(amount) filter (where kind = 'adjustment'), 0)::bigint as "adjustment!"
from transfers
where created_at >= :from and created_at < :to;

-- name: SumDocuments :many
-- What documents of a range say of money, by time and by what else is asked for: a receipt says
-- what was paid at the rate of its order, a credit note what went back or was lost. What is granted
-- for an order after its receipt counts when it is. Money that goes back counts as far as it was
-- granted: the rest never was revenue.
-- :bucket  day, week, month or none
with documents as (
  select order_id, issued_at as at, 1 as orders, 0::bigint as paid, 0::bigint as refunded,
    0::bigint as lost
  from payment_documents
  where kind = 'receipt' and issued_at >= :from and issued_at < :to
  union all
  select order_id, created_at, 0, micro / 200, 0, 0
  from payment_grants
  where micro > 0 and created_at >= :from and created_at < :to
  union all
  select d.order_id, d.issued_at, 0, 0, coalesce(r.micro / 200, 0), coalesce(-g.micro / 200, 0)
  from payment_documents d
  left join payment_grants g on g.order_id = d.order_id and g.n = d.grant_n
  left join payment_refunds r on r.order_id = d.order_id and r.n = d.refund_n
  where d.kind = 'credit_note' and d.issued_at >= :from and d.issued_at < :to
)
select (case when :bucket::text = 'none' then :from::timestamptz
    else date_trunc(:bucket, d.at, 'UTC') end at time zone 'utc')::date as "bucket!",
  case when :by_pack::boolean and o.kind = 'pack' then o.usd_micro else 0 end as "pack!",
  case when :by_asset::boolean then o.asset else '' end as "asset!",
  case when :by_network::boolean then o.network else '' end as "network!",
  case when :by_processor::boolean then o.processor else '' end as "processor!",
  case when :by_kind::boolean then o.kind else '' end as "kind!",
  sum(d.orders)::bigint as "orders!", sum(d.paid)::bigint as "paid_micro!",
  sum(d.refunded)::bigint as "refunded_micro!", sum(d.lost)::bigint as "lost_micro!"
from documents d
join payment_orders o on o.order_id = d.order_id
group by 1, 2, 3, 4, 5, 6
order by 1, 2, 3, 4, 5, 6;

-- name: SumCoins :many
-- The coins that arrived for orders with a receipt, in the same groups: each when it was settled,
-- or when its order got the receipt. One that is lost later stays where it is.
-- :bucket  day, week, month or none
with arrived as (
  select p.order_id, p.asset, p.decimals, p.atoms, greatest(p.settled_at, d.issued_at) as at
  from payment_deposits p
  join payment_documents d on d.order_id = p.order_id and d.kind = 'receipt'
  where p.settled_at is not null and p.settled_at < :to::timestamptz and d.issued_at < :to
    and (p.settled_at >= :from or d.issued_at >= :from)
)
select (case when :bucket::text = 'none' then :from::timestamptz
    else date_trunc(:bucket, a.at, 'UTC') end at time zone 'utc')::date as "bucket!",
  case when :by_pack::boolean and o.kind = 'pack' then o.usd_micro else 0 end as "pack!",
  case when :by_asset::boolean then o.asset else '' end as "asset!",
  case when :by_network::boolean then o.network else '' end as "network!",
  case when :by_processor::boolean then o.processor else '' end as "processor!",
  case when :by_kind::boolean then o.kind else '' end as "kind!",
  a.asset as "coin!", a.decimals as "decimals!", sum(a.atoms) as "atoms!"
from arrived a
join payment_orders o on o.order_id = a.order_id
group by 1, 2, 3, 4, 5, 6, 7, 8
order by 1, 2, 3, 4, 5, 6, 7, 8;

-- name: ListLiabilities :many
-- What the pools of a family had posted at the end of each UTC day of a range, those in debt apart,
-- and what changed it on that day. Counted back from what they have posted now, so that it reads
-- only what came after: a charge counts on the day of its admission. Charges of closed days come
-- from the sums of sales, which have them three days after the day began; of months whose charges
-- were removed before there were such sums, from the days of the usage.
-- :to  the day after the last one
-- =family 'v1' | 'v2'
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
  select "family", least(day, :to::date) as day, sum(amount) as amount
  from (
    select t."family" collate "C" as "family", t.day, t.amount
    from sales_totals t
    where t.day >= greatest(:from::date, (select sums_from from bounds))
      and t.day < (select sums_to from bounds)
    union all
    select k."family" collate "C", d.day, d.amount
    from usage_daily d
    join keys k on k.key_id = d.key_id
    where d.day >= greatest(:from::date, (select sums_to from bounds))
      and d.day < (select closed_to from bounds)
    union all
    select k."family" collate "C", d.day, d.amount
    from usage_daily d
    join keys k on k.key_id = d.key_id
    where d.day >= :from::date
      and d.day < (select least(sums_from, sums_to, closed_to) from bounds)
    union all
    select k."family" collate "C", (h.hour at time zone 'utc')::date, h.amount
    from usage_hourly h
    join keys k on k.key_id = h.key_id
    where h.key_id >= ''
      and h.hour >= greatest(:from::date, (select closed_to from bounds))::timestamp
        at time zone 'utc'
  ) parts
  group by 1, 2
), transferred as (
  select "family" collate "C" as "family",
    least((created_at at time zone 'utc')::date, :to::date) as day, kind, sum(amount) as amount
  from transfers
  where created_at >= (:from::date)::timestamp at time zone 'utc'
  group by 1, 2, 3
), added_days as (
  select "family", day, jsonb_object_agg(kind, amount::text) as kinds, sum(amount) as amount
  from transferred
  group by 1, 2
), days as (
  select f."family", d.day::date as day
  from (values ('v1' collate "C"), ('v2' collate "C")) f ("family")
  cross join generate_series(:from::date, :to::date, interval '1 day') d (day)
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
  where created_at >= (:from::date)::timestamp at time zone 'utc'
    and least(posted_after, posted_after - amount) < 0
), changes as (
  select account_id, "family", least(day, :to::date) as day, sum(amount) as amount
  from (
    select t.account_id, t."family", (t.created_at at time zone 'utc')::date as day, t.amount
    from indebted i
    join transfers t on t.account_id = i.account_id and t."family" = i."family"
    where t.created_at >= (:from::date)::timestamp at time zone 'utc'
    union all
    select k.account_id, k."family", d.day, -d.amount
    from indebted i
    join keys k on k.account_id = i.account_id and k."family" = i."family"
    join usage_daily d on d.account_id = k.account_id and d.key_id = k.key_id
    where d.day >= :from::date and d.day < (select closed_to from bounds)
    union all
    select k.account_id, k."family", (h.hour at time zone 'utc')::date, -h.amount
    from indebted i
    join keys k on k.account_id = i.account_id and k."family" = i."family"
    join usage_hourly h on h.account_id = k.account_id and h.key_id = k.key_id
    where h.hour >= greatest(:from::date, (select closed_to from bounds))::timestamp
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
    cross join generate_series(:from::date, :to::date, interval '1 day') d (day)
    left join changes c on c.account_id = p.account_id and c."family" = p."family"
      and c.day = d.day::date
  ) each_pool
  where posted < 0
  group by 1, 2
)
select e."family" as "family!", e.day as "day!", (e.posted + coalesce(n.amount, 0))::bigint
    as "owed!",
  coalesce(n.amount, 0)::bigint as "debts!", e.charged::bigint as "charged!", e.added as "added!"
from ends e
left join debts n on n."family" = e."family" and n.day::date = e.day
where e.day < :to::date
order by e.day, e."family";

-- name: SetBill :run
-- Stores what a provider billed for a month, in place of what was stored before.
insert into provider_bills (provider, month, usd_micro, note, set_by)
values (:provider, :month::date, :usd_micro, :note, :set_by)
on conflict (provider, month) do update
set usd_micro = excluded.usd_micro, note = excluded.note, set_by = excluded.set_by,
  set_at = excluded.set_at;

-- name: ListBills :many
-- What each provider cost in each month by the sums, and what it billed. Null: nobody said.
-- :to  the day after the last one
with computed as (
  select provider, date_trunc('month', day::timestamp)::date as month,
    sum(cost_pico) as cost_pico, sum(requests)::bigint as requests,
    sum(uncosted)::bigint as uncosted
  from sales_totals
  where day >= :from::date and day < :to::date and provider <> ''
  group by 1, 2
)
select provider as "provider!", month as "month!", coalesce(c.cost_pico, 0) as "cost_pico!",
  coalesce(c.requests, 0) as "requests!", coalesce(c.uncosted, 0) as "uncosted!",
  b.usd_micro as "usd_micro?", b.note as "note?", b.set_by as "set_by?", b.set_at as "set_at?"
from computed c
full join (
  select provider, month, usd_micro, note, set_by, set_at
  from provider_bills
  where month >= :from::date and month < :to::date
) b using (provider, month)
order by month, provider;

-- name: ReadSalesCompleteness :one
-- The time up to which every settled charge is in the sums. Null: they are being written anew.
select case when is_emptying then null else nullif(complete_to, '-infinity') end as "complete_to?"
from sales_progress;
