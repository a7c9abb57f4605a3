// Made of src/alerts/sql by `npm run generate`. Do not edit.

import { type Json, type Many, many, type One, one, type Optional, optional, type Run, run } from "../../src/postgres/statement.ts";

// alerts.sql

export type InsertAlertsRow = { alertId: string };
/**
 * Raises alerts that nobody has raised, with their deliveries. Returns those that are new.
 * `deliveredIds`: the alert of each delivery
 */
export const insertAlerts: Many<{ alertIds: readonly string[]; accountIds: readonly string[]; kinds: readonly string[]; facts: readonly string[]; onPage: readonly boolean[]; deliveredIds: readonly string[]; channels: readonly string[]; triedMs: readonly number[] }, InsertAlertsRow> = many(
  "alerts/insert-alerts",
  `-- alerts/insert-alerts
with raised as (
  insert into alerts (alert_id, account_id, kind, facts, on_page)
  select w.alert_id, w.account_id, w.kind, w.facts::jsonb, w.on_page
  from unnest($1::text[], $2::text[], $3::text[], $4::text[],
      $5::boolean[])
    as w (alert_id, account_id, kind, facts, on_page)
  on conflict do nothing
  returning alert_id, account_id
), delivered as (
  insert into alert_deliveries (alert_id, channel, account_id, ends_at)
  select d.alert_id, d.channel, r.account_id,
    now() + d.tried_ms * interval '1 millisecond'
  from unnest($6::text[], $7::text[], $8::float8[])
    as d (alert_id, channel, tried_ms)
  join raised r using (alert_id)
)
select alert_id from raised`,
  (p) => [p.alertIds, p.accountIds, p.kinds, p.facts, p.onPage, p.deliveredIds, p.channels, p.triedMs],
  (v) => ({ alertId: v[0] }) as never,
  "",
  5000,
);

export type ReadProgressRow = { eventsAt: Date; beganAt: Date };
/**
 * Up to when events are known, and the time.
 */
export const readProgress: One<undefined, ReadProgressRow> = one(
  "alerts/read-progress",
  `-- alerts/read-progress
select events_at, now() as began_at from alert_progress`,
  () => [],
  (v) => ({ eventsAt: v[0], beganAt: v[1] }) as never,
  "",
  5000,
);

export type ClaimPostsRow = { alertId: string; channel: string; failures: number; accountId: string; kind: string; facts: Json; raisedAt: Date };
/**
 * Takes posts to webhooks that are due, at most one of each account, so that an account whose
 * receiver is slow keeps no other one waiting. A process settles what it takes within the lease;
 * otherwise the delivery is due again.
 */
export const claimPosts: Many<{ rows: bigint | number; leaseMs: number }, ClaimPostsRow> = many(
  "alerts/claim-posts",
  `-- alerts/claim-posts
with chosen as (
  select distinct on (account_id) alert_id, channel, next_at
  from alert_deliveries
  where state = 'waiting' and channel = 'webhook' and next_at <= now()
  order by account_id, next_at
), taken as (
  select d.alert_id, d.channel
  from alert_deliveries d
  join (select alert_id, channel from chosen order by next_at limit $1) c
    using (alert_id, channel)
  where d.state = 'waiting' and d.next_at <= now()
  for update of d skip locked
), leased as (
  update alert_deliveries d
  set next_at = now() + $2::float8 * interval '1 millisecond'
  from taken t
  where d.alert_id = t.alert_id and d.channel = t.channel
  returning d.alert_id, d.channel, d.failures
)
select l.alert_id, l.channel, l.failures, a.account_id, a.kind, a.facts, a.raised_at
from leased l
join alerts a using (alert_id)`,
  (p) => [p.rows, p.leaseMs],
  (v) => ({ alertId: v[0], channel: v[1], failures: v[2], accountId: v[3], kind: v[4], facts: v[5], raisedAt: v[6] }) as never,
  "",
  5000,
);

export type ClaimMailsRow = { alertId: string; channel: string; failures: number; accountId: string; kind: string; facts: Json; raisedAt: Date };
/**
 * Takes mails that are due, for at most one kind and person of each account, with the others that
 * are due to the same person about the same kind: one mail tells of all of them. An account gets
 * one mail an hour to each person about each kind, and so many a day. Neither holds for what the
 * operators get, unless accounts cause it. A process settles what it takes within the lease.
 */
export const claimMails: Many<{ perDay: bigint | number; rows: bigint | number; leaseMs: number }, ClaimMailsRow> = many(
  "alerts/claim-mails",
  `-- alerts/claim-mails
with chosen as (
  select distinct on (d.account_id) d.alert_id, d.channel, d.account_id, d.next_at, a.kind,
    a.account_id = '' and a.kind <> 'order_waiting' as is_unbounded
  from alert_deliveries d
  join alerts a using (alert_id)
  where d.state = 'waiting' and d.channel <> 'webhook' and d.next_at <= now()
    and (a.account_id = '' and a.kind <> 'order_waiting' or (
      not exists (
        select
        from alert_deliveries o
        join alerts b using (alert_id)
        where o.account_id = d.account_id and o.channel = d.channel and b.kind = a.kind
          and o.channel <> 'webhook' and o.state in ('sent', 'waiting')
          and o.next_at > now() - case o.state when 'sent' then interval '1 hour' else '0' end
      )
      and (
        select count(*)
        from alert_deliveries o
        where o.account_id = d.account_id and o.channel <> 'webhook' and o.state = 'sent'
          -- Those that another mail told of do not count.
          and o.problem = '' and o.next_at > now() - interval '1 day'
      ) < $1::bigint
    ))
  order by d.account_id, d.next_at
), taken as (
  select d.alert_id, d.channel
  from alert_deliveries d
  join alerts a using (alert_id)
  join (select * from chosen order by next_at limit $2) c
    on c.account_id = d.account_id and c.channel = d.channel and c.kind = a.kind
  where d.state = 'waiting' and d.channel <> 'webhook' and d.next_at <= now()
    and (d.alert_id = c.alert_id or not c.is_unbounded)
  for update of d skip locked
), leased as (
  update alert_deliveries d
  set next_at = now() + $3::float8 * interval '1 millisecond'
  from taken t
  where d.alert_id = t.alert_id and d.channel = t.channel
  returning d.alert_id, d.channel, d.failures
)
select l.alert_id, l.channel, l.failures, a.account_id, a.kind, a.facts, a.raised_at
from leased l
join alerts a using (alert_id)
order by a.raised_at desc, a.alert_id desc`,
  (p) => [p.perDay, p.rows, p.leaseMs],
  (v) => ({ alertId: v[0], channel: v[1], failures: v[2], accountId: v[3], kind: v[4], facts: v[5], raisedAt: v[6] }) as never,
  "",
  5000,
);

export type FindNewRow = { alertId: string };
/**
 * Of these alerts, those that nobody has raised.
 */
export const findNew: Many<{ alertIds: readonly string[] }, FindNewRow> = many(
  "alerts/find-new",
  `-- alerts/find-new
select w.alert_id as alert_id
from unnest($1::text[]) as w (alert_id)
where not exists (select from alerts a where a.alert_id = w.alert_id)`,
  (p) => [p.alertIds],
  (v) => ({ alertId: v[0] }) as never,
  "",
  5000,
);

export type ListAlertsRow = { alertId: string; accountId: string; kind: string; facts: Json; raisedAt: Date; dismissedAt: Date | null };
/**
 * Lists alerts that are on the page, newest first.
 * `unread`: true: without those that somebody has dismissed
 * `hidesPeople`: true: without those that name people
 * `before`: only those before this time; null: from the newest
 * `beforeId`: or at this time, before this alert
 */
export const listAlerts: Many<{ accountId: string; unread: boolean; hidesPeople: boolean; before: Date | string | null; beforeId: string | null; rows: bigint | number }, ListAlertsRow> = many(
  "alerts/list-alerts",
  `-- alerts/list-alerts
select alert_id, account_id, kind, facts, raised_at, dismissed_at
from alerts
where account_id = $1 and on_page
  and (not $2::boolean or dismissed_at is null)
  and (not $3::boolean or kind <> 'new_place')
  and ($4::timestamptz is null or (raised_at, alert_id) < ($4, $5::text))
order by raised_at desc, alert_id desc
limit $6`,
  (p) => [p.accountId, p.unread, p.hidesPeople, p.before, p.beforeId, p.rows],
  (v) => ({ alertId: v[0], accountId: v[1], kind: v[2], facts: v[3], raisedAt: v[4], dismissedAt: v[5] }) as never,
  "dismissedAt",
  5000,
);

export type ListDeliveriesRow = { alertId: string; channel: string; state: "waiting" | "sent" | "failed"; problem: string };
/**
 * Lists what became of the deliveries of alerts.
 */
export const listDeliveries: Many<{ alertIds: readonly string[] }, ListDeliveriesRow> = many(
  "alerts/list-deliveries",
  `-- alerts/list-deliveries
select alert_id, channel, state, problem
from alert_deliveries
where alert_id = any($1::text[])
order by alert_id, channel`,
  (p) => [p.alertIds],
  (v) => ({ alertId: v[0], channel: v[1], state: v[2], problem: v[3] }) as never,
  "",
  5000,
);

/**
 * Notes that the events before this time are known.
 */
export const setProgress: Run<{ eventsAt: Date | string }> = run(
  "alerts/set-progress",
  `-- alerts/set-progress
update alert_progress set events_at = $1::timestamptz`,
  (p) => [p.eventsAt],
  5000,
);

/**
 * Marks an alert as read. Changes no row: the account has no such alert on its page.
 */
export const dismissAlert: Run<{ alertId: string; accountId: string; hidesPeople: boolean }> = run(
  "alerts/dismiss-alert",
  `-- alerts/dismiss-alert
update alerts
set dismissed_at = coalesce(dismissed_at, now())
where alert_id = $1 and account_id = $2 and on_page
  and (not $3::boolean or kind <> 'new_place')`,
  (p) => [p.alertId, p.accountId, p.hidesPeople],
  5000,
);

/**
 * Records the outcome of an attempt. A delivery whose time is over does not wait for another one.
 */
export const settleDelivery: Run<{ state: "waiting" | "sent" | "failed"; waitMs: number; problem: string; alertId: string; channel: string }> = run(
  "alerts/settle-delivery",
  `-- alerts/settle-delivery
update alert_deliveries
set state = case
    when $1 = 'waiting' and now() + $2::float8 * interval '1 millisecond' >= ends_at
      then 'failed'
    else $1 end,
  problem = $3, failures = failures + case when $1 = 'sent' then 0 else 1 end,
  next_at = now() + $2::float8 * interval '1 millisecond'
where alert_id = $4 and channel = $5 and state = 'waiting'`,
  (p) => [p.state, p.waitMs, p.problem, p.alertId, p.channel],
  5000,
);

/**
 * Lets the other deliveries to the webhook of an account wait: its receiver is away.
 */
export const postponeWebhooks: Run<{ waitMs: number; accountId: string }> = run(
  "alerts/postpone-webhooks",
  `-- alerts/postpone-webhooks
update alert_deliveries
set next_at = now() + $1::float8 * interval '1 millisecond'
where account_id = $2 and channel = 'webhook' and state = 'waiting'
  and next_at < now() + $1::float8 * interval '1 millisecond'`,
  (p) => [p.waitMs, p.accountId],
  5000,
);

/**
 * Removes the oldest alerts, with their deliveries, once they have been kept for long enough.
 */
export const removeAlerts: Run<{ days: number; rows: bigint | number }> = run(
  "alerts/remove-alerts",
  `-- alerts/remove-alerts
delete from alerts
where alert_id in (
  select alert_id from alerts
  where raised_at < now() - $1::integer * interval '1 day'
  order by raised_at
  limit $2
)`,
  (p) => [p.days, p.rows],
  5000,
);

export type OpenOutagesRow = { provider: string; model: string; openedAt: Date };
/**
 * Notes that these models are unusable at their providers, and returns their outages.
 */
export const openOutages: Many<{ providers: readonly string[]; models: readonly string[] }, OpenOutagesRow> = many(
  "alerts/open-outages",
  `-- alerts/open-outages
insert into provider_outages (provider, model)
select o.provider, o.model from unnest($1::text[], $2::text[]) as o (provider, model)
on conflict (provider, model) do update set answered_at = null
returning provider, model, opened_at`,
  (p) => [p.providers, p.models],
  (v) => ({ provider: v[0], model: v[1], openedAt: v[2] }) as never,
  "",
  5000,
);

/**
 * Notes that these models are answered again.
 */
export const answerOutages: Run<{ providers: readonly string[]; models: readonly string[] }> = run(
  "alerts/answer-outages",
  `-- alerts/answer-outages
update provider_outages p
set answered_at = now()
from unnest($1::text[], $2::text[]) as o (provider, model)
where p.provider = o.provider and p.model = o.model and p.answered_at is null`,
  (p) => [p.providers, p.models],
  5000,
);

export type ListEndedOutagesRow = { provider: string; model: string; openedAt: Date };
/**
 * Lists the outages of models that have been answered for this long.
 */
export const listEndedOutages: Many<{ answeredMs: number }, ListEndedOutagesRow> = many(
  "alerts/list-ended-outages",
  `-- alerts/list-ended-outages
select provider, model, opened_at
from provider_outages
where answered_at <= now() - $1::float8 * interval '1 millisecond'`,
  (p) => [p.answeredMs],
  (v) => ({ provider: v[0], model: v[1], openedAt: v[2] }) as never,
  "",
  5000,
);

/**
 * Ends an outage, unless it has begun again.
 */
export const removeOutage: Run<{ provider: string; model: string }> = run(
  "alerts/remove-outage",
  `-- alerts/remove-outage
delete from provider_outages
where provider = $1 and model = $2 and answered_at is not null`,
  (p) => [p.provider, p.model],
  5000,
);

// settings.sql

/**
 * Replaces the settings of an account.
 */
export const putSettings: Run<{ accountId: string; belowCredits: bigint | number | null; belowDays: number | null; percents: readonly number[]; rules: string; webhookUrl: string | null; webhookSecret: Buffer | null }> = run(
  "alerts/put-settings",
  `-- alerts/put-settings
insert into alert_settings
  (account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (account_id) do update
set below_credits = excluded.below_credits, below_days = excluded.below_days,
  percents = excluded.percents, rules = excluded.rules, webhook_url = excluded.webhook_url,
  webhook_secret = excluded.webhook_secret, changed_at = now()`,
  (p) => [p.accountId, p.belowCredits, p.belowDays, p.percents, p.rules, p.webhookUrl, p.webhookSecret],
  5000,
);

export type ReadSettingsRow = { accountId: string; belowCredits: bigint | null; belowDays: number | null; percents: number[]; rules: Json; webhookUrl: string | null; webhookSecret: Buffer | null };
/**
 * Reads the settings of accounts. An account without a row has the defaults.
 */
export const readSettings: Many<{ accountIds: readonly string[] }, ReadSettingsRow> = many(
  "alerts/read-settings",
  `-- alerts/read-settings
select account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret
from alert_settings
where account_id = any($1::text[])`,
  (p) => [p.accountIds],
  (v) => ({ accountId: v[0], belowCredits: v[1], belowDays: v[2], percents: v[3], rules: v[4], webhookUrl: v[5], webhookSecret: v[6] }) as never,
  "belowCredits belowDays webhookUrl webhookSecret",
  5000,
);

export type LockSettingsRow = { accountId: string; belowCredits: bigint | null; belowDays: number | null; percents: number[]; rules: Json; webhookUrl: string | null; webhookSecret: Buffer | null };
/**
 * Reads the settings of an account, and locks them.
 */
export const lockSettings: Optional<{ accountId: string }, LockSettingsRow> = optional(
  "alerts/lock-settings",
  `-- alerts/lock-settings
select account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret
from alert_settings
where account_id = $1
for update`,
  (p) => [p.accountId],
  (v) => ({ accountId: v[0], belowCredits: v[1], belowDays: v[2], percents: v[3], rules: v[4], webhookUrl: v[5], webhookSecret: v[6] }) as never,
  "belowCredits belowDays webhookUrl webhookSecret",
  5000,
);
