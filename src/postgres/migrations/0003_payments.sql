-- Purchases of credits: orders, what arrived for them, and what was granted. Money is bigint: `usd`
-- columns are micro-dollars, `micro` columns micro-credits (1 micro-dollar is 200 micro-credits).
-- Coins are atoms, such as satoshi. Orders and deposits are never deleted.

-- One row for each account that ever ordered: locked while its orders are counted.
create table payment_accounts (
  account_id text collate "C" primary key
);

create table payment_orders (
  order_id           text collate "C" primary key,
  account_id         text collate "C" not null,
  "family"           text not null check ("family" in ('v1', 'v2')),
  idempotency_key    text not null,
  kind               text not null default 'pack' check (kind in ('pack', 'direct')),
  usd_micro          bigint not null check (usd_micro > 0),
  processor          text collate "C" not null,
  method             text not null,
  asset              text not null,
  network            text not null,
  decimals           smallint not null,
  -- The order at its processor. Null: the processor has not opened it yet.
  external_id        text collate "C",
  quoted_atoms       numeric(78, 0) check (quoted_atoms > 0),
  -- Micro-dollars of one coin.
  rate               bigint check (rate > 0),
  pay_to             text not null default '',
  memo               text not null default '',
  checkout_url       text not null default '',
  state              text not null default 'open' check (state in
    ('open', 'seen', 'partly_paid', 'paid', 'expired', 'cancelled', 'closed')),
  cancelled_at       timestamptz,
  -- Why a person has to look. Null: nobody has to.
  attention          text,
  -- What the processor reported besides deposits, and which facts a person has dealt with.
  faults             text[] not null default '{}',
  handled            text[] not null default '{}',
  -- What the rules grant: all of payment_grants but what persons decided.
  rule_micro         bigint not null default 0 check (rule_micro >= 0),
  refunded_usd_micro bigint not null default 0 check (refunded_usd_micro >= 0),
  -- Null: nothing was credited yet.
  receipt_number     text,
  -- Seller and buyer on its documents, as they were when it was made. Empty: unknown.
  seller_name        text not null default '',
  seller_address     text not null default '',
  seller_tax_id      text not null default '',
  buyer_name         text not null default '',
  buyer_address      text not null default '',
  buyer_tax_id       text not null default '',
  created_by         text not null,
  created_at         timestamptz not null default now(),
  quoted_until       timestamptz not null,
  watched_until      timestamptz not null,
  -- Null: not watched.
  next_look_at       timestamptz,
  -- A node looks, until then at the latest.
  lease_until        timestamptz,
  -- The start of the last look that the processor answered.
  looked_at          timestamptz,
  failed_looks       integer not null default 0,
  -- A webhook asked for a look that has not happened yet.
  hook_at            timestamptz,
  -- Somebody watches the order, until then at the latest.
  page_open_until    timestamptz,
  -- Counts up with every change that a customer sees.
  version            bigint not null default 1,
  unique (account_id, idempotency_key),
  unique (processor, external_id),
  check (kind = 'direct' or usd_micro >= 5000000),
  check (external_id is null or (quoted_atoms is not null and rate is not null))
);
create index payment_orders_by_account on payment_orders (account_id, order_id);
create index payment_orders_by_look on payment_orders (processor, next_look_at)
  where next_look_at is not null;
create index payment_orders_by_attention on payment_orders (order_id) where attention is not null;

create table payment_deposits (
  processor            text collate "C" not null,
  external_id          text collate "C" not null,
  -- Null: it waits on an address without an order.
  order_id             text collate "C" references payment_orders,
  account_id           text collate "C" not null,
  "family"             text not null,
  asset                text not null,
  network              text not null,
  decimals             smallint not null,
  atoms                numeric(78, 0) not null check (atoms > 0),
  -- Micro-dollars of one coin at the first sight. Null: unknown, or the quoted rate counts.
  market_rate          bigint,
  -- Null: not settled yet, or of unknown value.
  usd_micro            bigint check (usd_micro >= 0),
  valued_by            text check (valued_by in ('quote', 'market', 'processor')),
  -- The processor's own valuation, where that counts.
  processor_usd_micro  bigint check (processor_usd_micro >= 0),
  -- States only go forwards. Lost is the last one.
  state                text not null check (state in ('seen', 'settled', 'lost')),
  -- Reported again after it was lost: a person has to look.
  returned             boolean not null default false,
  confirmations        integer not null default 0,
  confirmations_needed integer not null default 0,
  block                text,
  first_seen_at        timestamptz not null,
  settled_at           timestamptz,
  primary key (processor, external_id)
);
create index payment_deposits_by_order on payment_deposits (order_id, first_seen_at, external_id);

-- What is granted for an order, in rows that are never changed but for their transfer.
create table payment_grants (
  order_id    text collate "C" not null references payment_orders,
  n           integer not null check (n > 0),
  micro       bigint not null check (micro <> 0),
  -- Null: not posted yet.
  transfer_id text collate "C",
  created_at  timestamptz not null default now(),
  primary key (order_id, n)
);
create index payment_grants_unposted on payment_grants (order_id, n) where transfer_id is null;

-- What persons decided about the attention of an order.
create table payment_decisions (
  decision_id text collate "C" primary key,
  order_id    text collate "C" not null references payment_orders,
  kind        text not null check (kind in ('grant', 'close')),
  -- The facts that it deals with.
  facts       text[] not null,
  -- Micro-credits, each for the deposit of the same position. Empty id: for no single deposit.
  deposit_ids text[] not null default '{}',
  micros      bigint[] not null default '{}',
  reason      text not null,
  -- Pending: another person has to approve it. Replaced: a changed one took its place.
  state       text not null check (state in ('pending', 'done', 'replaced')),
  decided_by  text not null,
  approved_by text,
  created_at  timestamptz not null default now(),
  done_at     timestamptz
);
create index payment_decisions_by_order on payment_decisions (order_id, decision_id);
create unique index payment_decisions_pending on payment_decisions (order_id)
  where state = 'pending';

-- Money that goes back to customers. A person sends the coins.
create table payment_refunds (
  order_id           text collate "C" not null references payment_orders,
  n                  integer not null check (n > 0),
  usd_micro          bigint not null check (usd_micro >= 0),
  -- The deposit that goes back whole, because its value is unknown. Null: an amount of dollars.
  external_id        text collate "C",
  -- Credits that it takes back: those that had been granted for it.
  micro              bigint not null check (micro >= 0),
  -- Bonuses of promotions that it takes back besides, because they needed the purchase.
  bonus_micro        bigint not null default 0 check (bonus_micro >= 0),
  -- Asked and cancelling: the transfer of its credits is not posted yet. Refused: the pool had too
  -- few free credits.
  state              text not null check (state in
    ('asked', 'refused', 'refunding', 'completed', 'cancelling', 'cancelled')),
  transfer_id        text collate "C",
  cancel_transfer_id text collate "C",
  -- The transaction of the person who sent the coins.
  "transaction"      text not null default '',
  reason             text not null,
  made_by            text not null,
  created_at         timestamptz not null default now(),
  ended_at           timestamptz,
  primary key (order_id, n)
);
create unique index payment_refunds_open on payment_refunds (order_id)
  where state in ('asked', 'refunding', 'cancelling');
create index payment_refunds_unposted on payment_refunds (order_id, n)
  where state in ('asked', 'cancelling');

-- At most one look in a second for each slot: five slots for each processor.
create table payment_look_slots (
  processor text collate "C" not null,
  slot      integer not null,
  used_at   timestamptz not null,
  primary key (processor, slot)
);

-- The inbox of webhooks. Rows older than 90 days are removed.
create table payment_hooks (
  processor    text collate "C" not null,
  delivery_key text collate "C" not null,
  external_id  text collate "C" not null,
  received_at  timestamptz not null default now(),
  body_sha256  bytea not null,
  -- A further payment of that order, which only webhooks name. Empty: none.
  deposit_id   text collate "C" not null default '',
  primary key (processor, delivery_key)
);
create index payment_hooks_by_time on payment_hooks (received_at);
create index payment_hooks_named on payment_hooks (processor, external_id) where deposit_id <> '';

-- The last number of each kind of document, by seller and UTC year.
create table payment_numbers (
  seller text not null,
  kind   text not null,
  year   integer not null,
  last   integer not null check (last > 0),
  primary key (seller, kind, year)
);

-- Receipts and credit notes. They are never changed or deleted, so their numbers have no gap.
create table payment_documents (
  seller    text not null,
  kind      text not null check (kind in ('receipt', 'credit_note')),
  year      integer not null,
  n         integer not null,
  -- As it is shown.
  number    text not null,
  order_id  text collate "C" not null references payment_orders,
  -- Of a credit note: the grant or the refund that takes credits back.
  grant_n   integer,
  refund_n  integer,
  issued_at timestamptz not null default now(),
  primary key (seller, kind, year, n),
  check ((kind = 'receipt') = (grant_n is null and refund_n is null))
);
create index payment_documents_by_order on payment_documents (order_id);
create unique index payment_documents_receipt on payment_documents (order_id)
  where kind = 'receipt';
create unique index payment_documents_grant on payment_documents (order_id, grant_n)
  where grant_n is not null;
create unique index payment_documents_refund on payment_documents (order_id, refund_n)
  where refund_n is not null;

create table promotions (
  code_id        text collate "C" primary key,
  -- SHA-256 of the letters and digits of the code.
  code_sha256    bytea not null unique,
  name           text not null,
  "family"       text not null check ("family" in ('v1', 'v2')),
  bonus_micro    bigint not null check (bonus_micro > 0),
  -- Null: never.
  ends_at        timestamptz,
  -- Null: any number.
  most           integer check (most > 0),
  used           integer not null default 0 check (used >= 0),
  needs_purchase boolean not null default true,
  created_by     text not null,
  created_at     timestamptz not null default now(),
  stopped_at     timestamptz,
  check (used <= most)
);

create table promotion_uses (
  code_id     text collate "C" not null references promotions,
  account_id  text collate "C" not null,
  -- The purchase that the code needed: its refund takes the bonus first. Null: it needed none.
  order_id    text collate "C" references payment_orders,
  -- The refund of that order that took the bonus back. Null: none did.
  refund_n    integer,
  used_at     timestamptz not null,
  -- Null: the bonus is not posted yet.
  transfer_id text collate "C",
  primary key (code_id, account_id)
);
create index promotion_uses_by_order on promotion_uses (order_id) where order_id is not null;
create index promotion_uses_unposted on promotion_uses (used_at) where transfer_id is null;

-- What was pretended to arrive for orders of the simulated processor.
create table simulated_payments (
  deposit_id    text collate "C" primary key,
  order_id      text collate "C" not null references payment_orders,
  asset         text not null,
  network       text not null,
  decimals      smallint not null,
  atoms         numeric(78, 0) not null check (atoms > 0),
  confirmations integer not null check (confirmations >= 0),
  lost          boolean not null default false,
  first_seen_at timestamptz not null
);
create index simulated_payments_by_order on simulated_payments (order_id);

-- What else the simulated processor was made to report.
create table simulated_faults (
  order_id text collate "C" not null references payment_orders,
  fault    text not null check (fault in ('marked', 'failed')),
  primary key (order_id, fault)
);

-- Chains that the gateway reads by itself. One node reads a chain at a time.
create table chains (
  processor    text collate "C" not null,
  chain        text collate "C" not null,
  -- The last block that is not read again. Null: nothing was read yet.
  height       bigint,
  hash         text,
  -- The newest block at the last reading, and when that was.
  tip          bigint,
  read_at      timestamptz,
  next_read_at timestamptz not null default now(),
  -- A node reads, until then at the latest. It also names the reading.
  lease_until  timestamptz,
  primary key (processor, chain)
);

-- Blocks that were read, to find where a chain went another way. The last 200 are kept.
create table chain_blocks (
  processor text collate "C" not null,
  chain     text collate "C" not null,
  height    bigint not null,
  hash      text not null,
  primary key (processor, chain, height)
);

-- The next address of each account key, by the beginning of its digest.
create table deposit_keys (
  key_id     text collate "C" primary key,
  next_index bigint not null
);

-- One permanent address for each account, pool and account key. The key of all EVM chains is one.
create table deposit_addresses (
  key_id     text collate "C" not null,
  index      bigint not null,
  -- In lower case for EVM chains.
  address    text collate "C" not null unique,
  account_id text collate "C" not null,
  "family"   text not null check ("family" in ('v1', 'v2')),
  created_at timestamptz not null default now(),
  primary key (key_id, index),
  unique (account_id, "family", key_id)
);

-- What arrived at those addresses, as the chain says it.
create table chain_payments (
  processor     text collate "C" not null,
  external_id   text collate "C" not null,
  chain         text collate "C" not null,
  address       text collate "C" not null references deposit_addresses (address),
  asset         text not null,
  decimals      smallint not null,
  atoms         numeric(78, 0) not null check (atoms > 0),
  state         text not null check (state in ('seen', 'settled', 'lost')),
  -- The block that has it. Null: none has, or the chain left that block.
  height        bigint,
  hash          text,
  -- Micro-dollars of one coin at its first sight. Null: unknown.
  market_rate   bigint check (market_rate > 0),
  -- Blocks that it needs, as of the last reading.
  needed        integer not null default 1,
  -- The outputs that it spends: whoever else spends one of them replaces it.
  spends        text[] not null default '{}',
  -- Since when it is in no block and not waiting for one.
  missing_since timestamptz,
  first_seen_at timestamptz not null,
  -- Null: it waits on its address.
  order_id      text collate "C" references payment_orders,
  primary key (processor, external_id)
);
create index chain_payments_by_order on chain_payments (order_id);
create index chain_payments_unsettled on chain_payments (processor, chain) where state = 'seen';
create index chain_payments_waiting on chain_payments (processor, chain) where order_id is null;
create index chain_payments_by_height on chain_payments (processor, chain, height);
create index chain_payments_by_address on chain_payments (address, first_seen_at);

-- Ether leaves no log: what an address had at the block at which it was last looked at.
create table address_balances (
  processor text collate "C" not null,
  chain     text collate "C" not null,
  address   text collate "C" not null references deposit_addresses (address),
  atoms     numeric(78, 0) not null,
  nonce     bigint not null,
  height    bigint not null,
  block_at  timestamptz not null,
  primary key (processor, chain, address)
);
create index address_balances_by_height on address_balances (processor, chain, height);
