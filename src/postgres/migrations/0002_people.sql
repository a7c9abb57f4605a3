-- People, their ways in and sessions, the members of accounts, and the log of administrative acts.

-- One row: what this installation knows about itself.
create table installation (
  is_only          boolean primary key default true check (is_only),
  -- The account that the first start made. Null: no start has made one.
  account_id       text collate "C",
  -- Signs challenges. Null: not used yet.
  challenge_secret bytea,
  -- When a process last took on the daily removal of old data.
  cleaned_at       timestamptz
);
insert into installation default values;

create table people (
  person_id         text collate "C" primary key,
  -- Null: the person was deleted.
  login             text collate "C" unique check (login = lower(login)),
  name              text not null default '',
  -- Confirmed: mail to it has reached the person, or a provider vouches for it. Null: none.
  email             text,
  email_verified_at timestamptz check ((email is null) = (email_verified_at is null)),
  operator          text not null default 'none' check (operator in ('none', 'support', 'admin')),
  created_at        timestamptz not null default now(),
  disabled_at       timestamptz,
  -- Keeps only the id, which keys and audit events name.
  deleted_at        timestamptz,
  check ((login is null) = (deleted_at is not null))
);

create index people_by_email on people (email);

create table sessions (
  -- SHA-256 of the token.
  digest       bytea primary key,
  session_id   text collate "C" not null unique,
  person_id    text collate "C" not null references people,
  -- How the person proved who he is.
  method       text not null check (method in ('passkey', 'password', 'oidc')),
  -- The passkey that began the session.
  passkey_id   text collate "C",
  made_at      timestamptz not null default now(),
  used_at      timestamptz not null default now(),
  ends_at      timestamptz not null,
  strong_until timestamptz not null,
  address      text not null,
  agent        text not null,
  ended_at     timestamptz
);
create index sessions_by_person on sessions (person_id, made_at);
create index sessions_by_time on sessions (made_at);

create table passkeys (
  -- As the authenticator chose it, in base64url.
  credential_id text collate "C" primary key,
  passkey_id    text collate "C" not null unique,
  person_id     text collate "C" not null references people,
  -- COSE.
  public_key    bytea not null,
  counter       bigint not null,
  name          text not null,
  created_at    timestamptz not null default now(),
  used_at       timestamptz
);
create index passkeys_by_person on passkeys (person_id);

create table passwords (
  person_id  text collate "C" primary key references people,
  -- Argon2id with its parameters and salt.
  hash       text not null,
  changed_at timestamptz not null default now()
);

-- Who somebody is at a provider of OIDC. An e-mail address alone never joins two people.
create table identities (
  issuer      text collate "C" not null,
  subject     text collate "C" not null,
  identity_id text collate "C" not null unique,
  person_id   text collate "C" not null references people,
  -- The roles that the groups at the provider gave at the last sign-in.
  operator    text not null default 'none' check (operator in ('none', 'support', 'admin')),
  -- Account id → role.
  accounts    jsonb not null default '{}',
  created_at  timestamptz not null default now(),
  used_at     timestamptz not null default now(),
  primary key (issuer, subject)
);
create index identities_by_person on identities (person_id);

create table links (
  -- SHA-256 of the token.
  digest     bytea primary key,
  link_id    text collate "C" not null unique,
  purpose    text not null check (purpose in
    ('owner', 'invitation', 'recovery', 'sign_up', 'email')),
  -- Of a recovery or an e-mail address: the person. Otherwise the id that a new person gets.
  person_id  text collate "C" not null,
  -- Null: the link joins no account.
  account_id text collate "C",
  role       text check (role in ('viewer', 'member', 'owner')),
  -- The proposed login. Empty: none.
  login      text not null default '',
  -- The address to which alone the link is sent: who has the link has the address. Null: the link
  -- was shown.
  email      text,
  made_by    text not null,
  made_at    timestamptz not null default now(),
  ends_at    timestamptz not null,
  used_at    timestamptz,
  check ((account_id is null) = (role is null))
);
create index links_by_account on links (account_id, made_at);

-- Mail to be sent, and what became of it. The secret of a link is made when its mail is sent, so
-- that no row holds one.
create table mails (
  mail_id  text collate "C" primary key,
  kind     text not null check (kind in
    ('email', 'email_changed', 'invitation', 'recovered', 'recovery', 'sign_up')),
  address  text collate "C" not null,
  -- Null: the mail has no link.
  link_id  text collate "C",
  facts    jsonb not null,
  state    text not null default 'waiting' check (state in ('waiting', 'sent', 'failed')),
  -- Why it was not sent the last time.
  problem  text not null default '',
  attempts integer not null default 0,
  made_at  timestamptz not null default now(),
  -- Not tried before.
  next_at  timestamptz not null default now(),
  -- Not tried again after.
  ends_at  timestamptz not null
);
create index mails_by_state on mails (state, next_at);
create index mails_by_address on mails (address, made_at);
create index mails_by_link on mails (link_id);

create table members (
  account_id text collate "C" not null,
  person_id  text collate "C" not null references people,
  role       text not null check (role in ('viewer', 'member', 'owner')),
  joined_at  timestamptz not null default now(),
  primary key (account_id, person_id)
);
create index members_by_person on members (person_id);

-- Failed passwords. The subject is a digest of a login, of a network, or of a pair of both.
create table sign_in_failures (
  subject    bytea primary key,
  kind       text not null check (kind in ('login', 'network', 'pair')),
  failures   integer not null,
  last_at    timestamptz not null,
  wait_until timestamptz not null
);

-- Challenges of passkeys that were answered: each is good for one answer.
create table spent_challenges (
  digest  bytea primary key,
  ends_at timestamptz not null
);

-- Credentials of the operator's programs. Revoked ones stay: the audit log names them.
create table admin_tokens (
  -- SHA-256 of the secret.
  digest     bytea primary key,
  token_id   text collate "C" not null unique,
  name       text not null,
  scope      text not null check (scope in ('read', 'keys', 'money', 'all')),
  -- Hint: the first and last characters of the secret.
  shown      text not null,
  created_by text not null,
  created_at timestamptz not null default now(),
  used_at    timestamptz,
  revoked_at timestamptz
);
create unique index admin_tokens_by_name on admin_tokens (lower(name));

create table audit_events (
  event_id   text collate "C" primary key,
  at         timestamptz not null,
  actor      text not null,
  -- Empty: the act concerns no account.
  account_id text collate "C" not null,
  method     text not null,
  outcome    text not null,
  facts      jsonb not null,
  address    text not null
);
create index audit_events_by_account on audit_events (account_id, at, event_id);
create index audit_events_by_time on audit_events (at, event_id);
create index audit_events_with_address on audit_events (at) where address <> '';

-- The feed of changed people and admin tokens: every process drops what it has cached of them.
create table people_changes (
  change_id  text collate "C" primary key,
  subject_id text collate "C" not null,
  changed_at timestamptz not null default clock_timestamp()
);
create index people_changes_by_time on people_changes (changed_at);
