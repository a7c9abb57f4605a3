-- Persons: how they confirm who they are, and what they make.

-- How the person of a session proved last, in a confirmation, who he is. Null: only as it began.
alter table sessions add confirmed_by text check (confirmed_by in ('passkey', 'password', 'oidc'));

-- The keys of somebody who is shut out. Nobody manages most keys that programs make.
create index keys_by_manager on keys (managed_by) where managed_by <> '' and status = 'active';
-- Those that count as live, and those that were made lately.
create index keys_live on keys (account_id) where status = 'active';
create index keys_by_creation on keys (account_id, created_at);

-- How many refused calls each caller made in an hour. The first of them leave an event each; the
-- others are counted in one.
create table audit_refusals (
  actor    text collate "C" not null,
  hour     timestamptz not null,
  refused  integer not null,
  -- The event that counts those beyond.
  event_id text collate "C" not null,
  primary key (actor, hour)
);
create index audit_refusals_by_hour on audit_refusals (hour);

-- The log of acts, in partitions by the UTC month, which `partitions.ts` adds. What has none, such
-- as all acts before this migration, is in the partition of the others.
alter table audit_events rename to audit_events_other;
alter table audit_events_other drop constraint audit_events_pkey;
alter index audit_events_by_account rename to audit_events_other_by_account;
alter index audit_events_by_time rename to audit_events_other_by_time;
alter index audit_events_with_address rename to audit_events_other_with_address;
create table audit_events (like audit_events_other including defaults) partition by range (at);
alter table audit_events add primary key (event_id, at);
create index audit_events_by_account on audit_events (account_id, at, event_id);
create index audit_events_by_time on audit_events (at, event_id);
create index audit_events_with_address on audit_events (at) where address <> '';
create index audit_events_refused on audit_events (at) where outcome <> 'ok';
alter table audit_events attach partition audit_events_other default;

-- Accounts that people got by signing up, by the network of the browser.
create table sign_ups (
  account_id text collate "C" primary key,
  network    bytea not null,
  made_at    timestamptz not null default now()
);
create index sign_ups_by_network on sign_ups (network, made_at);
create index sign_ups_by_time on sign_ups (made_at);

-- When the admin token of the environment was used last, to the minute.
alter table installation add admin_token_used_at timestamptz;
