-- compatible_from: 19
-- The operator's desk: what people type is found by an index, whatever it is; why a request was
-- refused; and what operators note about an account.

-- Names and addresses by their beginning, in small letters, and names by the beginning of a word.
create index accounts_by_name on accounts (lower(name) collate "C");
create index accounts_by_words on accounts
  using gin (array_to_tsvector(array_remove(string_to_array(lower(name), ' '), '')))
  with (fastupdate = off);
create index people_by_name on people (lower(name) collate "C");
create index people_by_words on people
  using gin (array_to_tsvector(array_remove(string_to_array(lower(name), ' '), '')))
  with (fastupdate = off);
create index people_by_small_email on people (lower(email) collate "C");
create index key_secrets_by_hint on key_secrets (shown collate "C");

create index transfers_by_id on transfers (transfer_id);
create index payment_documents_by_number on payment_documents (number);
create index payment_documents_by_time on payment_documents (issued_at, order_id, number);
create index payment_orders_by_external_id on payment_orders (external_id);
create index payment_orders_by_address on payment_orders (lower(pay_to));
create index payment_deposits_by_external_id on payment_deposits (external_id);
create index payment_deposits_by_amount on payment_deposits (asset, atoms);
create index chain_payments_by_external_id on chain_payments (external_id);
create index payment_transactions_by_hash on payment_transactions (tx);

-- Requests that were refused before their admission, of the last 7 days: at most 100 for each key
-- and hour, and the last time of each.
create table refusals (
  request_id text collate "C" not null,
  account_id text collate "C" not null,
  key_id     text collate "C" not null,
  at         timestamptz not null,
  -- As of the error.
  reason     text collate "C" not null,
  -- As the client named it. Empty: it was refused before that was read.
  model      text not null default '',
  -- Of the error: what was needed, and what there was.
  facts      jsonb not null default '{}',
  primary key (request_id, account_id)
);
create index refusals_by_key on refusals (key_id, at);
create index refusals_by_time on refusals (at);

-- What operators note about an account. Never changed, and not shown to customers.
create table account_notes (
  account_id text collate "C" not null,
  note_id    text collate "C" not null,
  at         timestamptz not null default now(),
  by         text not null,
  text       text not null,
  primary key (account_id, note_id)
);
