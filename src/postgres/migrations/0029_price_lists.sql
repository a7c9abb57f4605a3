-- Price lists of customers. A version is immutable, and the newest counts at once.
-- An older process would charge every account the public prices, so none may run beside it.
create table price_lists (
  price_list_id text collate "C" primary key,
  name          text not null unique,
  made_at       timestamptz not null default now(),
  made_by       text not null
);

create table price_list_versions (
  price_list_id text collate "C" not null references price_lists,
  n             integer not null check (n > 0),
  -- Hundredths of a percent off the price of every model.
  discount_bp   integer not null check (discount_bp between 0 and 10000),
  -- Model id -> {price, discount_bp}: prices of its own, as a configuration file has them, and
  -- another discount.
  models        jsonb not null,
  reason        text not null,
  made_by       text not null,
  made_at       timestamptz not null default now(),
  primary key (price_list_id, n)
);
create trigger price_list_versions_append_only before update or delete on price_list_versions
  for each row execute function refuse_change();
create trigger price_list_versions_no_truncate before truncate on price_list_versions
  for each statement execute function refuse_change();

alter table accounts
  -- Null: the public prices.
  add price_list_id text collate "C" references price_lists,
  add price_list_at timestamptz;
create index accounts_by_price_list on accounts (price_list_id) where price_list_id is not null;

alter table approvals
  drop constraint approvals_kind_check,
  add constraint approvals_kind_check check (kind in ('transfer', 'decision', 'refund', 'promotion',
    'admin_token', 'operator', 'sign_in_link', 'sweep_payment', 'price_list',
    'account_price_list'));
