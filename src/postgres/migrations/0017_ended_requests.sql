-- Requests that somebody wants ended: the node that runs one takes it out.
create table ended_requests (
  account_id text collate "C" not null,
  request_id text collate "C" not null,
  asked_at   timestamptz not null default now(),
  primary key (account_id, request_id)
);
