-- compatible_from: 22
-- True: an owner, an operator, an admin token or a management key has paused the key, and members
-- do not resume it.
alter table keys add paused_by_owner boolean not null default false;
-- Of a key that is paused already, nobody knows who paused it.
update keys set paused_by_owner = true where paused;

-- The last change of each limit of credits of a budget: alerts do not repeat for a limit that was
-- raised what the payer had spent before. No row: the limit is as it was when the payer was made.
create table limit_changes (
  account_id text collate "C" not null,
  "family"   text collate "C" not null,
  -- As budgets have it; empty: the whole pool.
  payer      text collate "C" not null,
  -- day, week, month or total
  "window"   text collate "C" not null,
  changed_at timestamptz not null,
  -- What the payer had spent in all when the limit was raised. Null: it was lowered, or is the
  -- first.
  passed     bigint check (passed >= 0),
  primary key (account_id, "family", payer, "window")
);

-- When the last of these requests was rejected.
alter table errors_hourly add last_at timestamptz not null default now();
