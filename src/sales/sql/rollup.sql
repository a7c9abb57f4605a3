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
-- Adds the next charges, in the order of their settlement, to the sums of their days, and returns
-- their number and the last of them. The cost of a charge is that of its last attempt, by the
-- version that its prompt demands, and covers what is not charged: tokens beyond the grant too.
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
    coalesce(p.input * k.input + (p.output::bigint + p.output_over) * k.output
      + (p.thinking::bigint + p.thinking_over) * k.thinking + p.cache_write_5m * k.cache_write_5m
      + p.cache_write_1h * k.cache_write_1h + p.cache_read * k.cache_read
      + p.web_searches * k.web_search, 0) as cost_pico
  from page p
  left join cost_versions k0 on k0.cost_version = p.attempt ->> 'costVersion'
  left join cost_versions k1 on k1.cost_version = k0.above_version and p.prompt > k0.above
  left join cost_versions k2 on k2.cost_version = k1.above_version and p.prompt > k1.above
  left join cost_versions k3 on k3.cost_version = k2.above_version and p.prompt > k2.above
  left join cost_versions k on k.cost_version
    = coalesce(k3.cost_version, k2.cost_version, k1.cost_version, k0.cost_version)
), added as (
  insert into sales_daily (day, account_id, "family", model, provider, cost_version, requests,
    uncosted, input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, overrun, cost_pico)
  select day, account_id, "family", model, provider, cost_version, count(*),
    count(*) filter (where is_uncosted), sum(input), sum(output), sum(thinking),
    sum(cache_write_5m), sum(cache_write_1h), sum(cache_read), sum(web_searches), sum(amount),
    sum(overrun), sum(cost_pico)
  from costed
  group by day, account_id, "family", model, provider, cost_version
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
    amount = sales_daily.amount + excluded.amount, overrun = sales_daily.overrun + excluded.overrun,
    cost_pico = sales_daily.cost_pico + excluded.cost_pico
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

-- name: RemoveSales :run
-- Removes some of the sums, but those of months whose charges are gone.
delete from sales_daily
where ctid = any (array (
  select ctid
  from sales_daily s
  where not exists (
    select from month_archives a
    where a.month = date_trunc('month', s.day::timestamp)::date and a.dropped_at is not null)
  limit :rows));

-- name: EndEmptying :run
-- Lets the charges be added from the first one on: those that are still there.
update sales_progress
set is_emptying = false, settled_at = '-infinity', request_id = '', account_id = '',
  complete_to = '-infinity';

-- name: CountSales :one
-- The time, and the number of charges in all sums.
select now() as "now!", coalesce(sum(requests), 0)::bigint as "charges!"
from sales_daily;

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
