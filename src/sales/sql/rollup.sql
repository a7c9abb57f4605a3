-- timeout_ms=30000

-- name: RegisterCost :run
-- Stores a cost version, unless it is stored already.
-- :above?  null: no other version counts
-- :above_version?
insert into cost_versions (cost_version, provider, model, input, output, thinking, cache_write_5m,
  cache_write_1h, cache_read, web_search, above, above_version)
values (:cost_version, :provider, :model, :input, :output, :thinking, :cache_write_5m,
  :cache_write_1h, :cache_read, :web_search, :above, :above_version)
on conflict do nothing;

-- name: LockSalesProgress :one
-- Reads how far the charges are in the sums, and keeps it from changing until the end of the
-- transaction.
select settled_at::text as "settled_at!", request_id, account_id, is_emptying
from sales_progress
for update;

-- name: AddPage :one
-- Adds the next charges, in the order of their settlement, to the sums of their time, and returns
-- their number and the last of them. The cost of a charge is that of its last attempt, by the
-- version that its prompt demands, and covers what is not charged: tokens beyond the grant too. It
-- is a numeric: one that somebody mistyped passes 64 bits. A version that is not stored has none.
-- :settled_at  after this charge, as the request and the account
-- :margin_ms  settled so long before `until`
-- not each: category  each is summed up, and each has its cost
with page as materialized (
  select c.account_id, c.request_id, c.settled_at, c.admitted_at, c."family", c.model, c.input,
    c.output, c.thinking, c.cache_write_5m, c.cache_write_1h, c.cache_read, c.web_searches,
    c.output_over, c.thinking_over, c.amount, c.overrun, c.attempts -> -1 as attempt,
    c.input::bigint + c.cache_read + c.cache_write_5m + c.cache_write_1h as prompt
  from charges c
  where c.amount >= 0
    and (c.settled_at, c.request_id, c.account_id)
      > (:settled_at::timestamptz, :request_id, :account_id)
    and c.settled_at < :until::timestamptz - :margin_ms::integer * interval '1 millisecond'
  order by c.settled_at, c.request_id, c.account_id
  limit :rows
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
select count(*)::integer as "charges!", max(settled_at)::text as "settled_at?",
  (array_agg(request_id order by settled_at, request_id, account_id))[count(*)::integer]
    as "request_id?",
  (array_agg(account_id order by settled_at, request_id, account_id))[count(*)::integer]
    as "account_id?"
from page;

-- name: MoveSalesProgress :run
-- Records that charges are in the sums, up to this one, and all that were settled before it.
update sales_progress
set settled_at = :settled_at::timestamptz, request_id = :request_id, account_id = :account_id,
  complete_to = greatest(complete_to, :settled_at::timestamptz);

-- name: CompleteSales :run
-- Records that every charge is in the sums that was settled so long before a time.
update sales_progress
set complete_to = greatest(complete_to,
  :until::timestamptz - :margin_ms::integer * interval '1 millisecond')
where not is_emptying;

-- name: BeginEmptying :run
-- Lets the sums be removed and written anew.
update sales_progress
set is_emptying = true, complete_to = '-infinity';

-- name: RemoveSales :one
-- Removes some of the sums of each table, but those of months whose charges are gone, and returns
-- the most that were removed of one.
with kept as (
  select month from month_archives where dropped_at is not null
), removed_days as (
  delete from sales_daily
  where ctid = any (array (
    select ctid from sales_daily s
    where not exists (
      select from kept k where k.month = date_trunc('month', s.day::timestamp)::date)
    limit :rows))
  returning day
), removed_months as (
  delete from sales_monthly
  where ctid = any (array (
    select ctid from sales_monthly s
    where not exists (select from kept k where k.month = s.month)
    limit :rows))
  returning month
), removed_totals as (
  delete from sales_totals
  where ctid = any (array (
    select ctid from sales_totals s
    where not exists (
      select from kept k where k.month = date_trunc('month', s.day::timestamp)::date)
    limit :rows))
  returning day
)
select greatest((select count(*) from removed_days), (select count(*) from removed_months),
  (select count(*) from removed_totals))::integer as "removed!";

-- name: EndEmptying :run
-- Lets the charges be added from the first one on: those that are still there.
update sales_progress
set is_emptying = false, settled_at = '-infinity', request_id = '', account_id = '',
  complete_to = '-infinity';

-- name: CountSales :one
-- The time, and the number of charges in all sums.
select now() as "now!", coalesce(sum(requests), 0)::bigint as "charges!"
from sales_totals;

-- name: ReadSalesProgress :one
-- How far the sums are, whether they have every charge that was settled before a time, and the
-- seconds since the first charge was settled that they lack. Null: they lack none, or are being
-- removed.
select p.is_emptying as "is_emptying!", nullif(p.complete_to, '-infinity') as "complete_to?",
  p.complete_to >= :since::timestamptz as "is_complete!",
  (select extract(epoch from now() - c.settled_at)::float8
   from charges c
   where c.amount >= 0
     and (c.settled_at, c.request_id, c.account_id)
       > (p.settled_at, p.request_id, p.account_id)
   order by c.settled_at, c.request_id
   limit 1) as "lag_seconds?"
from sales_progress p;
