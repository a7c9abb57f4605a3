-- Alerts: what was raised, to whom it is delivered, and who wants to hear of what.

-- An account without a row has the defaults. The empty account is that of the operators.
create table alert_settings (
  account_id     text collate "C" primary key,
  -- Micro-credits. Null: no alert.
  below_credits  bigint check (below_credits > 0),
  -- Null: no alert.
  below_days     integer check (below_days > 0),
  -- Kind → its channels.
  rules          jsonb not null,
  -- Null: no webhook.
  webhook_url    text,
  -- Signs posts, so it is kept as it is.
  webhook_secret bytea,
  changed_at     timestamptz not null default now(),
  check ((webhook_url is null) = (webhook_secret is null))
);

create table alerts (
  -- kind/account/what/period: one event has one id at every process.
  alert_id     text collate "C" primary key,
  -- Empty: it concerns the whole installation.
  account_id   text collate "C" not null,
  kind         text not null,
  facts        jsonb not null,
  -- False: only delivered, or stored so that it is never raised.
  on_page      boolean not null,
  raised_at    timestamptz not null default date_trunc('milliseconds', now()),
  -- When somebody marked it as read.
  dismissed_at timestamptz
);
create index alerts_by_account on alerts (account_id, raised_at, alert_id);
create index alerts_by_time on alerts (raised_at);

create table alert_deliveries (
  alert_id   text collate "C" not null references alerts on delete cascade,
  -- `webhook`, or `mail:` and a person.
  channel    text collate "C" not null,
  account_id text collate "C" not null,
  state      text not null default 'waiting' check (state in ('waiting', 'sent', 'failed')),
  -- Why the last attempt failed.
  problem    text not null default '',
  failures   integer not null default 0,
  -- Not tried before. While it is tried: when another process may try it.
  next_at    timestamptz not null default now(),
  -- Not tried again after.
  ends_at    timestamptz not null,
  primary key (alert_id, channel)
);
create index alert_deliveries_waiting on alert_deliveries (account_id, next_at)
  where state = 'waiting';

-- One row: how far the evaluation is. One process evaluates at a time.
create table alert_progress (
  is_only      boolean primary key default true check (is_only),
  evaluated_at timestamptz not null default now(),
  -- Null: nobody evaluates.
  leased_until timestamptz,
  -- Events of keys and sign-ins before are known.
  events_at    timestamptz not null default now()
);
insert into alert_progress default values;
