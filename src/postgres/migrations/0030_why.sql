-- First events are counted in finer steps: by 100 ms up to 1 s, then by half as much again each. A
-- count of before goes on as the one whose bound is the next above its own, so that no row is
-- written: what was counted up to 2 s is now counted up to 2.25 s. An older process would count
-- into others, so none may run beside it.
alter table usage_hourly rename first_event_10 to first_event_21;
alter table usage_hourly rename first_event_9 to first_event_20;
alter table usage_hourly rename first_event_8 to first_event_18;
alter table usage_hourly rename first_event_7 to first_event_16;
alter table usage_hourly rename first_event_6 to first_event_14;
alter table usage_hourly rename first_event_5 to first_event_12;
alter table usage_hourly rename first_event_4 to first_event_10;
alter table usage_hourly rename first_event_3 to first_event_5;
alter table usage_daily rename first_event_10 to first_event_21;
alter table usage_daily rename first_event_9 to first_event_20;
alter table usage_daily rename first_event_8 to first_event_18;
alter table usage_daily rename first_event_7 to first_event_16;
alter table usage_daily rename first_event_6 to first_event_14;
alter table usage_daily rename first_event_5 to first_event_12;
alter table usage_daily rename first_event_4 to first_event_10;
alter table usage_daily rename first_event_3 to first_event_5;

alter table usage_hourly
  add first_event_3  bigint not null default 0,
  add first_event_4  bigint not null default 0,
  add first_event_6  bigint not null default 0,
  add first_event_7  bigint not null default 0,
  add first_event_8  bigint not null default 0,
  add first_event_9  bigint not null default 0,
  add first_event_11 bigint not null default 0,
  add first_event_13 bigint not null default 0,
  add first_event_15 bigint not null default 0,
  add first_event_17 bigint not null default 0,
  add first_event_19 bigint not null default 0,
  -- Nano-credits that the prompt cache saved: the price of its tokens as plain input, less their
  -- own. Negative where writing cost more than reading saved.
  add cache_saved    bigint not null default 0;
alter table usage_daily
  add first_event_3  bigint not null default 0,
  add first_event_4  bigint not null default 0,
  add first_event_6  bigint not null default 0,
  add first_event_7  bigint not null default 0,
  add first_event_8  bigint not null default 0,
  add first_event_9  bigint not null default 0,
  add first_event_11 bigint not null default 0,
  add first_event_13 bigint not null default 0,
  add first_event_15 bigint not null default 0,
  add first_event_17 bigint not null default 0,
  add first_event_19 bigint not null default 0,
  add cache_saved    bigint not null default 0;

-- As before, with what the cache saved. `cacheSavedNano` of src/base/cost.ts computes the same.
drop view charge_sums;
create view charge_sums as
select c.*, p.prompt_over, p.prompt_above,
  -- Of the charged usage, whatever the hold, and of the tokens beyond the grant.
  upto.output as cost,
  (c.output_over * p.output + c.thinking_over * p.thinking + 999) / 1000 as cost_over,
  least(upto.input, c.hold) as amount_input,
  c.amount - least(upto.thinking, c.hold) as amount_output,
  least(upto.cache, c.hold) - least(upto.input, c.hold) as amount_cache,
  least(upto.thinking, c.hold) - least(upto.cache, c.hold) as amount_thinking,
  1 as requests,
  (c.outcome = 'completed')::int as completed,
  (c.outcome in ('provider_failed', 'provider_broke', 'gateway_failed', 'reaped',
    'input_above_hold'))::int as failed,
  (c.outcome in ('client_left_before_acceptance', 'client_left_before_content', 'client_left',
    'revoked', 'time_limit'))::int as cut,
  c.cache_read * (p.input - p.cache_read) + c.cache_write_5m * (p.input - p.cache_write_5m)
    + c.cache_write_1h * (p.input - p.cache_write_1h) as cache_saved
from charges c
left join price_versions p using (price_version)
cross join lateral (
  select c.input * p.input as input,
    c.cache_write_5m * p.cache_write_5m + c.cache_write_1h * p.cache_write_1h
      + c.cache_read * p.cache_read as cache,
    c.thinking * p.thinking as thinking, c.output * p.output as output,
    c.web_searches * p.web_search as searches
) part
cross join lateral (
  select part.input / 1000 + part.searches as input,
    part.input / 1000 + part.searches + part.cache / 1000 as cache,
    part.input / 1000 + part.searches + part.cache / 1000 + part.thinking / 1000 as thinking,
    (part.input + part.cache + part.thinking + part.output + 999) / 1000 + part.searches as output
) upto
where c.amount >= 0;

-- What the cache saved so far, from the charges that are kept: months that were archived and
-- removed before have 0. One pass over the charges.
create temporary table saved_before on commit drop as
select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC') as hour,
  sum(cache_saved)::bigint as cache_saved
from charge_sums
where cache_read > 0 or cache_write_5m > 0 or cache_write_1h > 0
group by 1, 2, 3, 4;
update usage_hourly u
set cache_saved = s.cache_saved
from saved_before s
where u.account_id = s.account_id and u.hour = s.hour and u.key_id = s.key_id
  and u.model = s.model;
update usage_daily u
set cache_saved = s.cache_saved
from (
  select account_id, key_id, model, (hour at time zone 'utc')::date as day,
    sum(cache_saved)::bigint as cache_saved
  from saved_before
  group by 1, 2, 3, 4
) s
where u.account_id = s.account_id and u.day = s.day and u.key_id = s.key_id
  and u.model = s.model;

-- How requests failed is counted from these charges, which are few, and from the index alone: it
-- has the month too, by which partitions are left out. The condition on the amount is that of the
-- other lists.
create index charges_not_completed on charges (account_id, admitted_at)
  include (outcome, key_id, model, month)
  where amount >= 0 and outcome <> 'completed';

-- Addresses of the console that people kept under a name.
create table saved_views (
  view_id    text collate "C" primary key,
  account_id text collate "C" not null references accounts,
  -- Whose it is. Null: the account's. Who leaves the account leaves the own ones.
  person_id  text collate "C",
  name       text not null,
  -- Below the address of the account: `usage?by=model`.
  address    text not null,
  saved_at   timestamptz not null default now(),
  foreign key (account_id, person_id) references members on delete cascade
);
create unique index saved_views_by_name on saved_views (account_id, person_id, name)
  nulls not distinct;
