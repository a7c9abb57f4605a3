-- Notices: what became of the payments of an order, told once each; deliveries that their account
-- sees and sends again; and webhooks that are switched off, or have another form.

-- An update tells nobody about the past: what was seen, late or short before this time. Null: the
-- order is younger.
alter table payment_orders add column quiet_before timestamptz default now();
alter table payment_orders alter column quiet_before drop default;

-- What became true of an order, written by the transaction that made it true. Never changed, but
-- for being read.
create table payment_events (
  order_id text collate "C" not null references payment_orders,
  n        bigint not null generated always as identity,
  kind     text not null check (kind in ('payment_seen', 'payment_credited', 'payment_short',
    'payment_late', 'payment_lost', 'payment_refunded', 'payment_decided')),
  -- What it is of, such as the number of a grant: no event of an order comes twice.
  subject  text collate "C" not null,
  at       timestamptz not null default now(),
  facts    jsonb not null,
  -- False: it has still to become an alert. Not found by its time or its number: one that is
  -- committed late may be earlier than those that were read.
  is_read  boolean not null default false,
  primary key (order_id, n),
  unique (order_id, kind, subject)
);
create index payment_events_unread on payment_events (n) where not is_read;

alter table alert_deliveries
  add column made_at timestamptz not null default date_trunc('milliseconds', now()),
  -- A person sends it again: no bound of mails holds it back.
  add column is_again boolean not null default false;
update alert_deliveries d set made_at = a.raised_at from alerts a where a.alert_id = d.alert_id;
create index alert_deliveries_by_account on alert_deliveries
  (account_id, made_at, alert_id, channel);
create index alert_deliveries_by_time on alert_deliveries (made_at);
create index alert_deliveries_sent on alert_deliveries (account_id, next_at) where state = 'sent';
create index alerts_unread on alerts (account_id) where on_page and dismissed_at is null;

alter table alert_settings
  add column webhook_form text not null default 'standard'
    check (webhook_form in ('standard', 'slack')),
  -- Since when every post failed, with no day between two that did. Null: the last one did not.
  add column failing_since timestamptz,
  add column last_failed_at timestamptz,
  -- When the webhook was switched off by its failures. Null: it was not.
  add column webhook_off_at timestamptz,
  add check ((failing_since is null) = (last_failed_at is null));
create index alert_settings_off on alert_settings (webhook_off_at) where webhook_off_at is not null;

-- Accounts with settings of their own get the new alerts as those without, until they say
-- otherwise. Who wants no alerts at all gets none of these.
update alert_settings
set rules = jsonb_build_object(
    'webhook_off', jsonb_build_object('page', true, 'mail', true, 'webhook', false))
  || case when account_id = '' then '{}' else (
    select jsonb_build_object('payment_seen',
        jsonb_build_object('page', true, 'mail', false, 'webhook', false))
      || jsonb_object_agg(kind, jsonb_build_object('page', true, 'mail', true, 'webhook', false))
    from unnest(array['payment_credited', 'payment_short', 'payment_late', 'payment_lost',
      'payment_refunded', 'payment_decided']) as kind
  ) end
  || rules
where rules <> '{}';
