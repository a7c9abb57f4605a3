-- Budgets: what each key, person and pool has spent, holds and may spend. They replace the months
-- of keys and their monthly caps, which are taken over and removed: no older program can run beside
-- it.

-- An odometer of one payer and pool: a key, a person (`person:<id>`) or a management key
-- (`mgmt:<id>`). A key always has a row; the others get one with their first limit. Rows are never
-- removed.
create table budgets (
  account_id   text collate "C" not null,
  "family"     text not null check ("family" in ('v1', 'v2')),
  payer        text collate "C" not null,
  -- All charges so far: only grows.
  spent        bigint not null default 0 check (spent >= 0),
  -- Of running requests, and their number, while there is a limit; else 0.
  held         bigint not null default 0 check (held >= 0),
  running      integer not null default 0 check (running >= 0),
  last_used_at timestamptz,
  -- The UTC day of the last admission or settlement, and what was spent when this day, its week,
  -- which begins on Monday, and its month began. Spent in a window is spent - base.
  day          date not null default '1970-01-01',
  day_base     bigint not null default 0,
  week_base    bigint not null default 0,
  month_base   bigint not null default 0,
  total_base   bigint not null default 0,
  -- Null: none.
  day_limit     bigint check (day_limit >= 0),
  week_limit    bigint check (week_limit >= 0),
  month_limit   bigint check (month_limit >= 0),
  total_limit   bigint check (total_limit >= 0),
  running_limit integer check (running_limit >= 0),
  is_limited    boolean not null generated always as (
    coalesce(day_limit, week_limit, month_limit, total_limit, running_limit) is not null) stored,
  primary key (account_id, "family", payer)
) with (fillfactor = 50);

-- What the charges of a closed month sum up to, by the person or management key that they name.
-- While the month is open, what its closing has read of them.
create table closed_budgets (
  account_id text collate "C" not null,
  "family"   text not null,
  payer      text collate "C" not null,
  month      date not null,
  amount     bigint not null,
  primary key (account_id, "family", payer, month)
);

-- The same columns for a pool as a whole.
alter table pools
  add spent         bigint not null default 0 check (spent >= 0),
  add running       integer not null default 0 check (running >= 0),
  add day           date not null default '1970-01-01',
  add day_base      bigint not null default 0,
  add week_base     bigint not null default 0,
  add month_base    bigint not null default 0,
  add total_base    bigint not null default 0,
  add day_limit     bigint check (day_limit >= 0),
  add week_limit    bigint check (week_limit >= 0),
  add month_limit   bigint check (month_limit >= 0),
  add total_limit   bigint check (total_limit >= 0),
  add running_limit integer check (running_limit >= 0),
  add is_limited    boolean not null generated always as (
    coalesce(day_limit, week_limit, month_limit, total_limit, running_limit) is not null) stored;

-- The person or management key whose row counts the request. Null: none.
alter table holds add manager text collate "C";
alter table charges add manager text collate "C";

-- True: an owner, an operator or a program of theirs has set the limits last, and members may only
-- tighten them.
alter table keys add limited_by_owner boolean not null default false;
-- The limits that members without one get, as JSON of BudgetLimits. Null: none.
alter table accounts add default_member_limits jsonb;
-- The percents of a limit at which an alert is raised.
alter table alert_settings add percents integer[] not null default '{80,100}';

insert into budgets (account_id, "family", payer, spent, held, running, last_used_at,
  day, day_base, week_base, month_base, month_limit)
select k.account_id, k."family", k.key_id, coalesce(m.spent, 0), coalesce(h.held, 0),
  coalesce(h.running, 0), m.last_used_at, t.day,
  coalesce(m.spent, 0) - coalesce(u.of_day, 0), coalesce(m.spent, 0) - coalesce(u.of_week, 0),
  coalesce(m.spent, 0) - coalesce(m.of_month, 0), k.monthly_cap
from keys k
cross join (select (now() at time zone 'utc')::date as day) t
left join (
  select account_id, key_id, sum(spent)::bigint as spent, max(last_used_at) as last_used_at,
    sum(spent) filter (where month = date_trunc('month', now() at time zone 'utc')::date)::bigint
      as of_month
  from key_months
  group by account_id, key_id
) m using (account_id, key_id)
left join (
  select account_id, key_id, sum(amount)::bigint as held, count(*)::integer as running
  from holds
  group by account_id, key_id
) h on k.monthly_cap is not null and h.account_id = k.account_id and h.key_id = k.key_id
left join (
  select account_id, key_id, sum(amount)::bigint as of_week,
    sum(amount) filter (where hour >= date_trunc('day', now(), 'UTC'))::bigint as of_day
  from usage_hourly
  where hour >= date_trunc('week', now(), 'UTC')
  group by account_id, key_id
) u on u.account_id = k.account_id and u.key_id = k.key_id;

update pools p
set spent = b.spent, day = b.day, day_base = b.day_base, week_base = b.week_base,
  month_base = b.month_base
from (
  select account_id, "family", sum(spent)::bigint as spent, max(day) as day,
    sum(day_base)::bigint as day_base, sum(week_base)::bigint as week_base,
    sum(month_base)::bigint as month_base
  from budgets
  group by account_id, "family"
) b
where p.account_id = b.account_id and p."family" = b."family";

update pools p
set running = h.running
from (
  select account_id, "family", count(*)::integer as running
  from holds
  group by account_id, "family"
) h
where p.account_id = h.account_id and p."family" = h."family";

drop table key_months;
alter table keys drop column monthly_cap;
