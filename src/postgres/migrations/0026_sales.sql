-- compatible_from: 24
-- What the operator pays at one provider, in pico-dollars (1e-12 USD) per token and search.
-- Immutable; the id is a hash of the content.
create table cost_versions (
  cost_version   text collate "C" primary key,
  -- As the configuration file names it, and the model as that provider does.
  provider       text not null,
  model          text not null,
  input          bigint not null check (input >= 0),
  output         bigint not null check (output >= 0),
  thinking       bigint not null check (thinking >= 0),
  cache_write_5m bigint not null check (cache_write_5m >= 0),
  cache_write_1h bigint not null check (cache_write_1h >= 0),
  cache_read     bigint not null check (cache_read >= 0),
  web_search     bigint not null check (web_search >= 0),
  -- Of more tokens of input, caches included, another version counts. Null: none does.
  above          integer check (above > 0),
  above_version  text collate "C",
  created_at     timestamptz not null default now(),
  check ((above is null) = (above_version is null))
);
create trigger cost_versions_append_only before update or delete on cost_versions
  for each row execute function refuse_change();
create trigger cost_versions_no_truncate before truncate on cost_versions
  for each statement execute function refuse_change();

-- Sums of charges by the UTC day of admission, with the provider of the last attempt and its cost.
-- Written behind the requests; all of it can be written anew from the charges.
create table sales_daily (
  day            date not null,
  account_id     text collate "C" not null,
  "family"       text collate "C" not null,
  model          text collate "C" not null,
  -- Empty: no provider was called.
  provider       text collate "C" not null,
  -- That which counts for the prompts of these requests. Empty: the file had none.
  cost_version   text collate "C" not null,
  requests       bigint not null,
  -- Of these, those that used tokens without a known cost.
  uncosted       bigint not null,
  input          bigint not null,
  output         bigint not null,
  thinking       bigint not null,
  cache_write_5m bigint not null,
  cache_write_1h bigint not null,
  cache_read     bigint not null,
  web_searches   bigint not null,
  amount         bigint not null,
  -- Cost of usage beyond holds and grants, which nobody pays.
  overrun        bigint not null,
  -- What the provider takes, in pico-dollars. A cost that somebody mistyped passes 64 bits.
  cost_pico      numeric(40, 0) not null,
  primary key (day, account_id, "family", model, provider, cost_version)
) with (fillfactor = 80);

-- The same sums by months, and by days of all accounts: reports over a year read few rows.
create table sales_monthly (like sales_daily including all) with (fillfactor = 80);
-- Its first day.
alter table sales_monthly rename column day to month;
create table sales_totals (like sales_daily) with (fillfactor = 80);
alter table sales_totals drop column account_id,
  add primary key (day, "family", model, provider, cost_version);

-- All of these sums. span: `day`, `month`, or `total` of the accounts on a day.
create view sales_sums as
select 'day' as span, day, account_id, "family", model, provider, requests, uncosted, input, output,
  thinking, cache_write_5m, cache_write_1h, cache_read, web_searches, amount, overrun, cost_pico
from sales_daily
union all
select 'month', month, account_id, "family", model, provider, requests, uncosted, input, output,
  thinking, cache_write_5m, cache_write_1h, cache_read, web_searches, amount, overrun, cost_pico
from sales_monthly
union all
select 'total', day, '', "family", model, provider, requests, uncosted, input, output,
  thinking, cache_write_5m, cache_write_1h, cache_read, web_searches, amount, overrun, cost_pico
from sales_totals;

-- How far the charges are in these sums, by their settlement. One row.
create table sales_progress (
  is_only     boolean primary key default true check (is_only),
  settled_at  timestamptz not null default '-infinity',
  request_id  text collate "C" not null default '',
  account_id  text collate "C" not null default '',
  -- Every charge that was settled before is in the sums.
  complete_to timestamptz not null default '-infinity',
  -- The sums are being removed, to be written anew.
  is_emptying boolean not null default false
);
insert into sales_progress default values;

-- What providers billed for a UTC month, as operators typed it. A later one takes its place.
create table provider_bills (
  provider  text collate "C" not null,
  -- Its first day.
  month     date not null check (month = date_trunc('month', month::timestamp)::date),
  usd_micro bigint not null check (usd_micro >= 0),
  note      text not null,
  set_by    text not null,
  set_at    timestamptz not null default now(),
  primary key (provider, month)
);

-- Revenue is booked when it is granted.
create index payment_grants_by_time on payment_grants (created_at) where micro > 0;

-- Reports read the transfers of all accounts since a day.
create index transfers_by_time on transfers (created_at);

-- The reports of a day are of all accounts. Days are written in their order.
create index usage_daily_by_day on usage_daily using brin (day);
