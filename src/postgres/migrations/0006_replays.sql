-- compatible_from: 4
-- What calls with an idempotency key have created, for a day: a repeat gets the same answer. The
-- account is empty where a call concerns none.
create table replays (
  account_id     text collate "C" not null,
  -- Who called, as audit events name him.
  actor          text collate "C" not null,
  key_sha256     bytea not null,
  method         text not null,
  -- Of the request, without its idempotency key.
  request_sha256 bytea not null,
  made_id        text collate "C" not null,
  -- The secret that the answer held, under a key that only the idempotency key gives. Null: there
  -- was none, or the idempotency key is short enough to be guessed.
  sealed         bytea,
  ends_at        timestamptz not null,
  primary key (account_id, actor, key_sha256)
);
create index replays_by_end on replays (ends_at);
