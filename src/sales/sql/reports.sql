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
-- only what came after: a charge counts on the day of its admission.
-- :to  the day after the last one
-- =family 'v1' | 'v2'
with days as (
  select day::date as day from generate_series(:from::date, :to::date - 1, interval '1 day') day
), transferred as (
  select account_id, "family", least((created_at at time zone 'utc')::date, :to::date) as day, kind,
    sum(amount) as amount
  from transfers
  where created_at >= (:from::date)::timestamp at time zone 'utc'
  group by 1, 2, 3, 4
), charged as (
  select u.account_id, k."family", u.day, sum(u.amount) as amount
  from (
    select d.account_id, d.key_id, least(d.day, :to::date) as day, d.amount
    from usage_daily d
    where d.day >= :from::date and d.day < (select closed_to from usage_progress)
    union all
    select h.account_id, h.key_id, least((h.hour at time zone 'utc')::date, :to::date), h.amount
    from usage_hourly h
    where h.key_id >= ''
      and h.hour >= greatest(:from::date, (select closed_to from usage_progress))::timestamp
        at time zone 'utc'
  ) u
  join keys k on k.key_id = u.key_id
  group by 1, 2, 3
), changes as (
  select account_id, "family", day, sum(amount) as amount
  from (
    select account_id, "family", day, amount from transferred
    union all
    select account_id, "family", day, -amount from charged
  ) both_kinds
  group by 1, 2, 3
), ends as (
  -- Posted at the end of the day before each change; the last row of a pool is what it has now.
  select p.account_id, p."family", c.day,
    p.posted - coalesce(sum(c.amount) over (
      partition by p.account_id, p."family" order by c.day desc
      rows between unbounded preceding and current row), 0) as before
  from pools p
  join changes c on c.account_id = p.account_id and c."family" = p."family"
), debts as (
  -- A pool is in debt at the end of each day from a change on, up to the day before the next one.
  select "family", day, sum(-amount) as amount
  from (
    select e."family", d.day, e.before as amount
    from (
      select account_id, "family", before, day as until,
        lag(day) over (partition by account_id, "family" order by day) as since
      from ends
    ) e
    join days d on d.day >= coalesce(e.since, :from::date) and d.day < e.until
    where e.before < 0
    union all
    select p."family", d.day, p.posted
    from pools p
    left join (
      select account_id, "family", max(day) as day from changes group by 1, 2
    ) c on c.account_id = p.account_id and c."family" = p."family"
    join days d on d.day >= coalesce(c.day, :from::date)
    where p.posted < 0
  ) negative
  group by 1, 2
), posted as (
  select "family", sum(posted) as amount from pools group by 1
), moved as (
  select "family", day, sum(amount) as amount from changes group by 1, 2
), charged_days as (
  select "family", day, sum(amount) as amount from charged group by 1, 2
), added_days as (
  select "family", day, jsonb_object_agg(kind, amount::text) as kinds
  from (select "family", day, kind, sum(amount) as amount from transferred group by 1, 2, 3) k
  group by 1, 2
)
select f."family" as "family!", d.day as "day!",
  (coalesce(p.amount, 0)
    - coalesce((select sum(m.amount) from moved m
        where m."family" = f."family" and m.day > d.day), 0)
    + coalesce(n.amount, 0))::bigint as "owed!",
  coalesce(n.amount, 0)::bigint as "debts!",
  coalesce(c.amount, 0)::bigint as "charged!",
  coalesce(a.kinds, '{}'::jsonb) as "added!"
from (values ('v1'), ('v2')) f ("family")
cross join days d
left join posted p on p."family" = f."family"
left join debts n on n."family" = f."family" and n.day = d.day
left join charged_days c on c."family" = f."family" and c.day = d.day
left join added_days a on a."family" = f."family" and a.day = d.day
order by d.day, f."family";

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
