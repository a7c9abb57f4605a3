-- The whole ledger. Rows that change with every request leave room on their page for their next
-- version (fillfactor), so that indexes need no update. Money is bigint micro-credits. Ids are
-- text, random or beginning with their time (UUIDv7), and compare bytewise. The state of a request
-- is the table that has its row: a running request has a hold, a finished one has a charge.
--
-- Everything that an account pays with begins with the account in its primary key: batches and
-- partitions live from it. A request is an account and a request id: two accounts may use the same
-- id.

create table accounts (
  account_id text collate "C" primary key,
  name       text not null,
  created_at timestamptz not null default now(),
  -- While suspended, its keys are refused. A closed account stays closed.
  status     text not null default 'active' check (status in ('active', 'suspended', 'closed')),
  -- Why, in the operator's words. Empty: not told.
  status_reason     text not null default '',
  status_changed_at timestamptz,
  -- Whom documents name. Empty: not told.
  billing_name      text not null default '',
  billing_address   text not null default '',
  billing_tax_id    text not null default ''
);

-- posted = sum of transfers - sum of charges; held = sum of holds.
create table pools (
  account_id text collate "C" not null references accounts,
  "family"   text not null check ("family" in ('v1', 'v2')),
  posted     bigint not null default 0,
  held       bigint not null default 0 check (held >= 0),
  -- Set by a chargeback of more than the free credits. Cleared as soon as posted covers held, by a
  -- transfer, a settlement or a shrunk hold.
  in_debt    boolean not null default false,
  -- A copy of accounts.status. Admission reads it with the row that it locks, for nothing.
  account_status text not null default 'active',
  primary key (account_id, "family"),
  check (held <= posted or in_debt)
) with (fillfactor = 50);
-- For operators. Few rows: a change of the other columns leaves it alone.
create index pools_in_debt on pools (account_id) where in_debt;

create table keys (
  key_id              text collate "C" primary key,
  account_id          text collate "C" not null references accounts,
  "family"            text not null check ("family" in ('v1', 'v2')),
  name                text not null,
  status              text not null default 'active' check (status in ('active', 'revoked')),
  -- Null: unlimited. 0: none.
  requests_per_minute integer check (requests_per_minute >= 0),
  -- Model ids, aliases resolved. Empty: all.
  allowed_models      text[] not null default '{}',
  -- Null: unlimited.
  monthly_cap         bigint check (monthly_cap >= 0),
  -- Who created the key. Empty: unknown.
  created_by          text not null default '',
  -- The member who may change it besides the owners, as `person:<id>`. Empty: nobody.
  managed_by          text not null default '',
  -- Whether the key reads its whole account.
  account_reader      boolean not null default false,
  paused              boolean not null default false,
  -- When it was paused last. Null: never.
  paused_at           timestamptz,
  -- Null: does not expire.
  expires_at          timestamptz,
  created_at          timestamptz not null default now(),
  revoked_at          timestamptz
);
create index keys_by_account on keys (account_id, key_id);

create table key_secrets (
  -- SHA-256 of the secret.
  digest     bytea primary key,
  secret_id  text collate "C" not null unique,
  key_id     text collate "C" not null references keys,
  -- Hint: the first and last characters of the secret.
  shown      text not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  -- Of calls that were not refused, to the minute. Null: never used.
  last_used_at timestamptz
) with (fillfactor = 80);
create index key_secrets_by_key on key_secrets (key_id);

-- A key's spend in one UTC calendar month. The cap bounds spent + held at every admission, apart
-- from what the input of its last request may cost beyond the least.
create table key_months (
  account_id   text collate "C" not null,
  key_id       text collate "C" not null references keys,
  month        date not null,
  spent        bigint not null default 0 check (spent >= 0),
  held         bigint not null default 0 check (held >= 0),
  last_used_at timestamptz,
  primary key (account_id, key_id, month)
) with (fillfactor = 50);

-- Feed of changed keys, read by every node. Rows older than a day are removed.
create table key_changes (
  change_id  text collate "C" primary key,
  key_id     text collate "C" not null,
  changed_at timestamptz not null default clock_timestamp()
);
create index key_changes_by_time on key_changes (changed_at);

-- Immutable; the id is a hash of the content.
create table price_versions (
  price_version  text collate "C" primary key,
  model          text not null,
  input          bigint not null check (input >= 0),
  output         bigint not null check (output >= 0),
  cache_write_5m bigint not null check (cache_write_5m >= 0),
  cache_write_1h bigint not null check (cache_write_1h >= 0),
  cache_read     bigint not null check (cache_read >= 0),
  thinking       bigint not null check (thinking >= 0),
  created_at     timestamptz not null default now()
);

create table holds (
  account_id     text collate "C" not null,
  request_id     text collate "C" not null,
  "family"       text not null,
  key_id         text collate "C" not null,
  secret_id      text collate "C",
  model          text not null,
  -- UTC month of admission; the charge belongs to it.
  month          date not null,
  amount         bigint not null check (amount >= 0),
  -- Output tokens, thinking included. No more are charged, even where the hold would cover more.
  granted_output integer not null,
  price_version  text collate "C" not null,
  -- Metered usage.
  input          integer not null default 0,
  output         integer not null default 0,
  cache_write_5m integer not null default 0,
  cache_write_1h integer not null default 0,
  cache_read     integer not null default 0,
  thinking       integer not null default 0,
  -- The process that settles the hold. Null: a hold of an internal service. It outlives the process
  -- that placed it, and the service may repeat its request at any process.
  node_id        text collate "C",
  -- Tells a repeat of the same admission from another request with the same id.
  nonce          text not null,
  admitted_at    timestamptz not null,
  deadline       timestamptz not null,
  -- As in charges.
  tags           jsonb,
  primary key (account_id, request_id)
);
create index holds_by_node on holds (node_id);
create index holds_by_deadline on holds (deadline);

-- One row per finished request, never changed. A partition holds the charges of one month;
-- `partitions.ts` adds the partitions. A request id is unique per account while its month is kept:
-- admission looks for used ids.
create table charges (
  account_id     text collate "C" not null,
  request_id     text collate "C" not null,
  -- UTC month of admission.
  month          date not null,
  "family"       text not null,
  key_id         text collate "C" not null,
  secret_id      text collate "C",
  model          text not null,
  input          integer not null check (input >= 0),
  output         integer not null check (output >= 0),
  cache_write_5m integer not null check (cache_write_5m >= 0),
  cache_write_1h integer not null check (cache_write_1h >= 0),
  cache_read     integer not null check (cache_read >= 0),
  thinking       integer not null check (thinking >= 0),
  price_version  text collate "C" not null,
  granted_output integer not null,
  hold           bigint not null,
  amount         bigint not null check (amount between 0 and hold),
  -- Cost of the usage beyond the hold. Not charged.
  overrun        bigint not null check (overrun >= 0),
  -- Tokens beyond the grant, which the gateway bears.
  output_over    integer not null check (output_over >= 0),
  thinking_over  integer not null check (thinking_over >= 0),
  outcome        text not null,
  basis          text not null,
  attempts       jsonb not null default '[]',
  admitted_at    timestamptz not null,
  settled_at     timestamptz not null,
  -- Values by key, both texts that the client chose. Null: none, which takes no room.
  tags           jsonb,
  primary key (account_id, request_id, month)
) partition by range (month);
-- For lists, which ask for amount >= 0. The condition holds for every row. It keeps the planner
-- from finding a request through these indexes: in a new partition without statistics they seem as
-- good as the primary key, but all charges of the account would be read.
create index charges_by_account on charges (account_id, admitted_at, request_id)
  where amount >= 0;
-- A key lists its own charges only.
create index charges_by_key on charges (account_id, key_id, admitted_at, request_id)
  where amount >= 0;
-- For readers that follow the charges of all accounts as they are settled.
create index charges_by_settlement on charges (settled_at, request_id) where amount >= 0;

create table transfers (
  account_id      text collate "C" not null references accounts,
  transfer_id     text collate "C" not null,
  "family"        text not null check ("family" in ('v1', 'v2')),
  kind            text not null
    check (kind in ('purchase', 'bonus', 'refund', 'chargeback', 'adjustment', 'deposit')),
  -- Signed: the change of the pool.
  amount          bigint not null check (amount <> 0),
  -- What the pool had posted right after this transfer.
  posted_after    bigint not null,
  actor           text not null,
  idempotency_key text not null,
  reason          text not null default '',
  created_at      timestamptz not null default now(),
  primary key (account_id, transfer_id),
  unique (account_id, idempotency_key)
);

-- Transfers that persons requested and another person has to approve, and what became of them.
create table pending_transfers (
  pending_transfer_id text collate "C" primary key,
  account_id          text collate "C" not null,
  "family"            text not null,
  kind                text not null,
  -- Positive: only what adds credits needs an approval.
  amount              bigint not null check (amount > 0),
  idempotency_key     text not null,
  reason              text not null,
  requested_by        text not null,
  requested_at        timestamptz not null default now(),
  -- Replaced: another request with its idempotency key took its place.
  state               text not null default 'pending' check (state in
    ('pending', 'approved', 'rejected', 'replaced')),
  decided_by          text,
  decided_at          timestamptz,
  -- Of an approved one.
  transfer_id         text collate "C"
);
create unique index pending_transfers_by_key on pending_transfers (account_id, idempotency_key)
  where state = 'pending';

-- Sums of charges by the UTC hour of admission, written with the charge, removed after 101 days.
create table usage_hourly (
  account_id      text collate "C" not null,
  key_id          text collate "C" not null,
  model           text not null,
  hour            timestamptz not null,
  input           bigint not null default 0,
  output          bigint not null default 0,
  cache_write_5m  bigint not null default 0,
  cache_write_1h  bigint not null default 0,
  cache_read      bigint not null default 0,
  thinking        bigint not null default 0,
  amount          bigint not null default 0,
  -- The parts of the amount.
  amount_input    bigint not null default 0,
  amount_output   bigint not null default 0,
  amount_cache    bigint not null default 0,
  amount_thinking bigint not null default 0,
  requests        bigint not null default 0,
  -- The parts of the requests.
  completed       bigint not null default 0,
  failed          bigint not null default 0,
  cut             bigint not null default 0,
  -- Requests by the time to their first event: billing/ledger-batches.ts has the bounds.
  first_event_1    bigint not null default 0,
  first_event_2    bigint not null default 0,
  first_event_3    bigint not null default 0,
  first_event_4    bigint not null default 0,
  first_event_5    bigint not null default 0,
  first_event_6    bigint not null default 0,
  first_event_7    bigint not null default 0,
  first_event_8    bigint not null default 0,
  first_event_9    bigint not null default 0,
  first_event_10   bigint not null default 0,
  primary key (account_id, hour, key_id, model)
) with (fillfactor = 70);
-- Days are closed and removed over all accounts. The condition holds for every row: it keeps the
-- planner from reading the hours of all accounts for the report of one.
create index usage_hourly_by_hour on usage_hourly (hour) where key_id >= '';

-- The same sums by UTC day, written once, when no request of the day runs any more.
create table usage_daily (
  account_id      text collate "C" not null,
  key_id          text collate "C" not null,
  model           text not null,
  day             date not null,
  input           bigint not null default 0,
  output          bigint not null default 0,
  cache_write_5m  bigint not null default 0,
  cache_write_1h  bigint not null default 0,
  cache_read      bigint not null default 0,
  thinking        bigint not null default 0,
  amount          bigint not null default 0,
  -- The parts of the amount.
  amount_input    bigint not null default 0,
  amount_output   bigint not null default 0,
  amount_cache    bigint not null default 0,
  amount_thinking bigint not null default 0,
  requests        bigint not null default 0,
  -- The parts of the requests.
  completed       bigint not null default 0,
  failed          bigint not null default 0,
  cut             bigint not null default 0,
  -- Requests by the time to their first event: billing/ledger-batches.ts has the bounds.
  first_event_1    bigint not null default 0,
  first_event_2    bigint not null default 0,
  first_event_3    bigint not null default 0,
  first_event_4    bigint not null default 0,
  first_event_5    bigint not null default 0,
  first_event_6    bigint not null default 0,
  first_event_7    bigint not null default 0,
  first_event_8    bigint not null default 0,
  first_event_9    bigint not null default 0,
  first_event_10   bigint not null default 0,
  primary key (account_id, day, key_id, model)
);

-- The sums of charges with a tag by UTC day and value, written with the day of usage_daily. A
-- charge with several tags is in the sums of each, so sums of different tags are never added up.
create table tags_daily (
  account_id      text collate "C" not null,
  day             date not null,
  tag             text collate "C" not null,
  -- `(other)` stands for the values beyond the 1,000 of a day and account that cost most.
  value           text collate "C" not null,
  key_id          text collate "C" not null,
  model           text not null,
  input           bigint not null,
  output          bigint not null,
  cache_write_5m  bigint not null,
  cache_write_1h  bigint not null,
  cache_read      bigint not null,
  thinking        bigint not null,
  amount          bigint not null,
  amount_input    bigint not null,
  amount_output   bigint not null,
  amount_cache    bigint not null,
  amount_thinking bigint not null,
  requests        bigint not null,
  completed       bigint not null,
  failed          bigint not null,
  cut             bigint not null,
  primary key (account_id, tag, day, value, key_id, model)
);
-- Days are written again and opened again over all accounts.
create index tags_daily_by_day on tags_daily (day);

-- How far the days are: one row.
create table usage_progress (
  -- Sums of the days before this one are in usage_daily.
  closed_to  date not null primary key,
  -- Hours of the days before this one were removed.
  hours_from date not null,
  -- Sums of the days before this one are in tags_daily.
  tags_to    date not null default '0001-01-01'
);
insert into usage_progress (closed_to, hours_from) values ('0001-01-01', '0001-01-01');

-- Requests that were rejected before their admission, by UTC hour. Removed after 101 days.
create table errors_hourly (
  account_id text collate "C" not null,
  hour       timestamptz not null,
  key_id     text collate "C" not null,
  reason     text collate "C" not null,
  requests   bigint not null,
  primary key (account_id, hour, key_id, reason)
) with (fillfactor = 70);

-- Months that are closed: how many charges they have, in sum and in the order of their settlement.
-- Never changed, and only the owner of the tables adds to it. Months are closed in their order.
create table month_closings (
  month     date primary key,
  charges   bigint not null check (charges >= 0),
  amount    bigint not null check (amount >= 0),
  -- Of the lines of the charges, and the form of these lines: src/history/digest.ts.
  sha256    bytea not null,
  form      integer not null,
  closed_at timestamptz not null default now()
);

-- What the charges of a closed month sum up to. Never changed.
create table closed_months (
  account_id      text collate "C" not null,
  month           date not null,
  "family"        text not null,
  key_id          text collate "C" not null,
  model           text not null,
  input           bigint not null,
  output          bigint not null,
  thinking        bigint not null,
  cache_write_5m  bigint not null,
  cache_write_1h  bigint not null,
  cache_read      bigint not null,
  amount          bigint not null,
  amount_input    bigint not null,
  amount_output   bigint not null,
  amount_cache    bigint not null,
  amount_thinking bigint not null,
  requests        bigint not null,
  completed       bigint not null,
  failed          bigint not null,
  cut             bigint not null,
  overrun         bigint not null,
  primary key (account_id, month, "family", key_id, model)
);
create index closed_months_by_month on closed_months (month);

-- How far the charges of open months are read for their closing: digests of blocks of their lines,
-- in the order of settlement. They and the sums below are removed when the month is closed. Only
-- the owner of the tables writes them.
create table closing_blocks (
  month      date not null,
  -- From 1 on.
  number     integer not null,
  charges    integer not null,
  -- Of the lines of its charges, and the form of these lines.
  sha256     bytea not null,
  form       integer not null,
  -- Its last charge.
  settled_at timestamptz not null,
  request_id text collate "C" not null,
  account_id text collate "C" not null,
  primary key (month, number)
);

-- What the charges of these blocks sum up to.
create table closing_sums (
  account_id      text collate "C" not null,
  month           date not null,
  "family"        text not null,
  key_id          text collate "C" not null,
  model           text not null,
  input           bigint not null,
  output          bigint not null,
  thinking        bigint not null,
  cache_write_5m  bigint not null,
  cache_write_1h  bigint not null,
  cache_read      bigint not null,
  amount          bigint not null,
  amount_input    bigint not null,
  amount_output   bigint not null,
  amount_cache    bigint not null,
  amount_thinking bigint not null,
  requests        bigint not null,
  completed       bigint not null,
  failed          bigint not null,
  cut             bigint not null,
  overrun         bigint not null,
  -- Charges that break a rule of the ledger.
  broken          bigint not null,
  primary key (account_id, month, "family", key_id, model)
);

-- Closed months of which a verified export exists. Only the owner of the tables writes it.
create table month_archives (
  month       date primary key,
  -- Of the lines of the export: that of the closing.
  sha256      bytea not null,
  -- The machine and the folder to which it was exported.
  place       text not null,
  verified_at timestamptz not null,
  -- When the charges of the month were removed. Null: they are here.
  dropped_at  timestamptz
);

-- How far the charges are in a sink. Its name has no credentials.
create table sink_cursors (
  sink       text primary key,
  -- The last charge that is in the sink.
  settled_at timestamptz not null default '-infinity',
  request_id text collate "C" not null default '',
  account_id text collate "C" not null default '',
  -- Of files: the one that is written, and how many bytes of it count.
  file       text not null default '',
  bytes      bigint not null default 0,
  moved_at   timestamptz not null default now()
);

-- Work that one process does at a time.
create table history_leases (
  task     text primary key,
  holder   text not null,
  taken_at timestamptz not null,
  until    timestamptz not null
);

-- Running gateway processes.
create table nodes (
  node_id      text collate "C" primary key,
  started_at   timestamptz not null default now(),
  -- Names the process to other processes of the same machine. Empty: unknown.
  process      text not null default '',
  -- Polls by other nodes since the last heartbeat, at most one a second.
  silent_polls integer not null default 0,
  -- Time of the last heartbeat or counted poll.
  polled_at    timestamptz not null default now(),
  -- How the process describes itself to operators, and when it did. Null: it has not.
  report       jsonb,
  reported_at  timestamptz
) with (fillfactor = 50);

-- Checks of the whole ledger: one row for each run of the verifier.
create table verifications (
  verification_id text collate "C" primary key,
  started_at      timestamptz not null,
  ended_at        timestamptz not null,
  started_by      text not null,
  violation_count integer not null check (violation_count >= 0),
  -- The first of them: invariant, subject and detail.
  violations      jsonb not null default '[]'
);

-- Charges, transfers and prices are append-only for every database user. The role of the gateway
-- has no right to change them either; triggers also stop their owner.
create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only', tg_table_name
    using errcode = 'integrity_constraint_violation';
end
$$;
create trigger charges_append_only before update or delete on charges
  for each row execute function refuse_change();
create trigger charges_no_truncate before truncate on charges
  for each statement execute function refuse_change();
create trigger transfers_append_only before update or delete on transfers
  for each row execute function refuse_change();
create trigger transfers_no_truncate before truncate on transfers
  for each statement execute function refuse_change();
create trigger price_versions_append_only before update or delete on price_versions
  for each row execute function refuse_change();
create trigger price_versions_no_truncate before truncate on price_versions
  for each statement execute function refuse_change();
create trigger month_closings_append_only before update or delete on month_closings
  for each row execute function refuse_change();
create trigger month_closings_no_truncate before truncate on month_closings
  for each statement execute function refuse_change();
create trigger closed_months_append_only before update or delete on closed_months
  for each row execute function refuse_change();
create trigger closed_months_no_truncate before truncate on closed_months
  for each statement execute function refuse_change();
-- The partition of a closed month takes no charges: partitions.ts gives it this trigger.
create function refuse_charge() returns trigger language plpgsql as $$
begin
  raise exception 'the month of % is closed', tg_table_name
    using errcode = 'integrity_constraint_violation';
end
$$;
