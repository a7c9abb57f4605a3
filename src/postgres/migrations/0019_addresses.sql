-- A leaked key is told as a key that stopped is, to accounts that have chosen their alerts.
update alert_settings
set rules = rules || jsonb_build_object('key_misplaced',
  coalesce(rules -> 'key_stopped', '{"page": true, "mail": true, "webhook": false}'))
where not rules ? 'key_misplaced';

-- From where a credential may be used: addresses and CIDR ranges in their one form. Empty: from
-- everywhere.
alter table keys add allowed_addresses text[] not null default '{}';
alter table admin_tokens add allowed_addresses text[] not null default '{}';

-- Keys with which a program of an account manages its keys. They pay for nothing.
create table management_keys (
  management_key_id text collate "C" primary key,
  account_id        text collate "C" not null references accounts,
  name              text not null,
  scopes            text[] not null
    check (cardinality(scopes) > 0 and scopes <@ array['read', 'keys', 'all_keys', 'buy']),
  -- How many keys that are neither revoked nor expired it may have made.
  most_keys         integer not null check (most_keys between 1 and 1000),
  -- The ceiling and the default of the limits of each key that it makes, by name. What is missing
  -- is unlimited.
  child_limits      jsonb not null default '{}',
  allowed_addresses text[] not null default '{}',
  -- The changing calls since `calls_from`, a minute at most.
  calls             integer not null default 0,
  calls_from        timestamptz not null default now(),
  created_by        text not null,
  created_at        timestamptz not null default now(),
  -- Null: does not expire.
  expires_at        timestamptz,
  revoked_at        timestamptz
) with (fillfactor = 80);
create index management_keys_by_account on management_keys (account_id);

create table management_secrets (
  -- SHA-256 of the secret.
  digest            bytea primary key,
  management_key_id text collate "C" not null references management_keys,
  -- Hint: the first and last characters of the secret.
  shown             text not null,
  created_at        timestamptz not null default now(),
  -- After a rotation. Null: does not expire.
  expires_at        timestamptz,
  used_at           timestamptz
);
create index management_secrets_by_key on management_secrets (management_key_id);
