// Made of src/alerts/sql by `npm run generate`. Do not edit.

import { type Json, type Many, many, type One, one, type Optional, optional, type Run, run } from "../../src/postgres/statement.ts";

// alerts.sql

export type InsertAlertsRow = { accountId: string };
/**
 * Raises alerts that nobody has raised, with their deliveries. Returns the accounts of new ones.
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
select account_id from raised`,
  (p) => [p.alertIds, p.accountIds, p.kinds, p.facts, p.onPage, p.deliveredIds, p.channels, p.triedMs],
  (v) => ({ accountId: v[0] }) as never,
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
 * Takes mails that are due: of each account one, with the others that it tells of. An account gets
 * one mail an hour to each person about each kind, which tells of all that are due; so many a day;
 * and of these so many about payments, each for one event, until no more are left than persons get
 * them: the last mail to each of these tells of all that are due. None of it holds for what a
 * person sends again, nor for what the operators get, unless accounts cause it. A process settles
 * what it takes within the lease.
 * `perDay`: mails of an account
 * `paymentsPerDay`: those about payments
 */
export const claimMails: Many<{ paymentsPerDay: bigint | number; perDay: bigint | number; rows: bigint | number; leaseMs: number }, ClaimMailsRow> = many(
  "alerts/claim-mails",
  `-- alerts/claim-mails
with due as (
  select d.alert_id, d.channel, d.account_id, d.next_at,
    case when a.kind like 'payment\\_%' then 'payment' else a.kind end as topic,
    d.is_again or (a.account_id = '' and a.kind <> 'order_waiting') as is_unbounded
  from alert_deliveries d
  join alerts a using (alert_id)
  where d.state = 'waiting' and d.channel <> 'webhook' and d.next_at <= now()
), recent as (
  select o.account_id, o.channel,
    case when b.kind like 'payment\\_%' then 'payment' else b.kind end as topic,
    -- Alerts that another mail counted have no mail of their own.
    count(*) filter (where o.state = 'sent' and o.problem = '' and not o.is_again) as mails,
    max(o.next_at) filter (where o.state = 'sent' and not o.is_again) as sent_at,
    bool_or(o.state = 'waiting') as is_tried
  from alert_deliveries o
  join alerts b using (alert_id)
  where o.account_id in (select account_id from due) and o.channel <> 'webhook'
    and (o.state = 'sent' and o.next_at > now() - interval '1 day'
      or o.state = 'waiting' and o.next_at > now())
  group by 1, 2, 3
), used as (
  select account_id, sum(mails) as mails,
    sum(mails + is_tried::integer) filter (where topic = 'payment') as payments
  from recent
  group by account_id
), payees as (
  select account_id, count(*) as persons
  from (
    select account_id, channel from due where topic = 'payment'
    union
    select account_id, channel from recent where topic = 'payment'
  ) p
  group by account_id
), chosen as (
  select distinct on (d.account_id) d.alert_id, d.channel, d.account_id, d.next_at, d.topic,
    d.is_unbounded or d.topic = 'payment'
      and $1::bigint - coalesce(u.payments, 0) > p.persons as is_alone
  from due d
  left join recent r
    on r.account_id = d.account_id and r.channel = d.channel and r.topic = d.topic
  left join used u on u.account_id = d.account_id
  left join payees p on p.account_id = d.account_id
  where d.is_unbounded or (
    not coalesce(r.is_tried, false)
    and coalesce(u.mails, 0) < $2::bigint
    and case d.topic
      when 'payment' then coalesce(u.payments, 0) < $1
      else coalesce(r.sent_at <= now() - interval '1 hour', true) end
  )
  order by d.account_id, d.next_at, d.alert_id
), taken as (
  select d.alert_id, d.channel
  from alert_deliveries d
  join alerts a using (alert_id)
  join (select * from chosen order by next_at limit $3) c
    on c.account_id = d.account_id and c.channel = d.channel
    and c.topic = case when a.kind like 'payment\\_%' then 'payment' else a.kind end
  where d.state = 'waiting' and d.channel <> 'webhook' and d.next_at <= now()
    -- A notice that a person sends again leaves in a mail of its own.
    and (d.alert_id = c.alert_id or not c.is_alone and not d.is_again)
  for update of d skip locked
), leased as (
  update alert_deliveries d
  set next_at = now() + $4::float8 * interval '1 millisecond'
  from taken t
  where d.alert_id = t.alert_id and d.channel = t.channel
  returning d.alert_id, d.channel, d.failures
)
select l.alert_id as alert_id, l.channel as channel, l.failures as failures,
  a.account_id as account_id, a.kind as kind, a.facts as facts, a.raised_at as raised_at
from leased l
join alerts a using (alert_id)
order by a.raised_at desc, a.alert_id desc`,
  (p) => [p.paymentsPerDay, p.perDay, p.rows, p.leaseMs],
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

export type ListDeliveriesRow = { alertId: string; channel: string; state: "waiting" | "sent" | "failed"; problem: string; failures: number; nextAt: Date };
/**
 * Lists what became of the deliveries of alerts.
 */
export const listDeliveries: Many<{ alertIds: readonly string[] }, ListDeliveriesRow> = many(
  "alerts/list-deliveries",
  `-- alerts/list-deliveries
select alert_id, channel, state, problem, failures, next_at
from alert_deliveries
where alert_id = any($1::text[])
order by alert_id, channel`,
  (p) => [p.alertIds],
  (v) => ({ alertId: v[0], channel: v[1], state: v[2], problem: v[3], failures: v[4], nextAt: v[5] }) as never,
  "",
  5000,
);

export type ListAccountDeliveriesRow = { alertId: string; channel: string; state: "waiting" | "sent" | "failed"; problem: string; failures: number; nextAt: Date; madeAt: Date; kind: string; facts: Json };
/**
 * Lists the deliveries of an account, newest first, each with its alert.
 * `failed`: true: only those that were given up
 * `before`: only those made before this time; null: from the newest
 * `beforeId`: or at this time, before this alert and channel
 */
export const listAccountDeliveries: Many<{ accountId: string; failed: boolean; before: Date | string | null; beforeId: string | null; beforeChannel: string | null; rows: bigint | number }, ListAccountDeliveriesRow> = many(
  "alerts/list-account-deliveries",
  `-- alerts/list-account-deliveries
select d.alert_id, d.channel, d.state, d.problem, d.failures, d.next_at, d.made_at, a.kind, a.facts
from alert_deliveries d
join alerts a using (alert_id)
where d.account_id = $1 and (not $2::boolean or d.state = 'failed')
  and ($3::timestamptz is null
    or (d.made_at, d.alert_id, d.channel) < ($3, $4::text, $5::text))
order by d.made_at desc, d.alert_id desc, d.channel desc
limit $6`,
  (p) => [p.accountId, p.failed, p.before, p.beforeId, p.beforeChannel, p.rows],
  (v) => ({ alertId: v[0], channel: v[1], state: v[2], problem: v[3], failures: v[4], nextAt: v[5], madeAt: v[6], kind: v[7], facts: v[8] }) as never,
  "",
  5000,
);

export type ListAccountMailsRow = { alertId: string; channel: string; state: "waiting" | "sent" | "failed"; problem: string; failures: number; nextAt: Date; madeAt: Date; kind: string; facts: Json };
/**
 * Lists the mails of an account, newest first, each with its alert.
 * `before`: only those made before this time; null: from the newest
 * `beforeId`: or at this time, before this alert and channel
 */
export const listAccountMails: Many<{ accountId: string; before: Date | string | null; beforeId: string | null; beforeChannel: string | null; rows: bigint | number }, ListAccountMailsRow> = many(
  "alerts/list-account-mails",
  `-- alerts/list-account-mails
select d.alert_id, d.channel, d.state, d.problem, d.failures, d.next_at, d.made_at, a.kind, a.facts
from alert_deliveries d
join alerts a using (alert_id)
-- As a range, which the index looks through alone: posts may be many.
where d.account_id = $1 and d.channel >= 'mail:' and d.channel < 'mail;'
  and ($2::timestamptz is null
    or (d.made_at, d.alert_id, d.channel) < ($2, $3::text, $4::text))
order by d.made_at desc, d.alert_id desc, d.channel desc
limit $5`,
  (p) => [p.accountId, p.before, p.beforeId, p.beforeChannel, p.rows],
  (v) => ({ alertId: v[0], channel: v[1], state: v[2], problem: v[3], failures: v[4], nextAt: v[5], madeAt: v[6], kind: v[7], facts: v[8] }) as never,
  "",
  5000,
);

export type FindAlertRow = { alertId: string; accountId: string; kind: string; facts: Json; raisedAt: Date };
/**
 * Finds an alert of an account, also one that is not on its page.
 */
export const findAlert: Optional<{ alertId: string; accountId: string }, FindAlertRow> = optional(
  "alerts/find-alert",
  `-- alerts/find-alert
select alert_id, account_id, kind, facts, raised_at
from alerts
where alert_id = $1 and account_id = $2`,
  (p) => [p.alertId, p.accountId],
  (v) => ({ alertId: v[0], accountId: v[1], kind: v[2], facts: v[3], raisedAt: v[4] }) as never,
  "",
  5000,
);

/**
 * Lets an alert be posted again, at once: also one that waits for longer than a process that posts
 * it is waited for. Changes no row: it was not posted, or that was forgotten.
 */
export const postAgain: Run<{ leaseMs: number; triedMs: number; alertId: string; accountId: string }> = run(
  "alerts/post-again",
  `-- alerts/post-again
update alert_deliveries
set next_at = case
    when state = 'waiting' and next_at <= now() + $1::float8 * interval '1 millisecond'
      then next_at
    else now() end,
  state = 'waiting', problem = '', failures = 0,
  ends_at = now() + $2::float8 * interval '1 millisecond'
where alert_id = $3 and account_id = $4 and channel = 'webhook'`,
  (p) => [p.leaseMs, p.triedMs, p.alertId, p.accountId],
  5000,
);

/**
 * Lets an alert be mailed to these persons, also to those who had it before.
 * `channels`: `mail:` and each person
 */
export const mailAgain: Run<{ triedMs: number; channels: readonly string[]; alertId: string }> = run(
  "alerts/mail-again",
  `-- alerts/mail-again
insert into alert_deliveries (alert_id, channel, account_id, ends_at, is_again)
select a.alert_id, c.channel, a.account_id,
  now() + $1::float8 * interval '1 millisecond', true
from alerts a
cross join unnest($2::text[]) as c (channel)
where a.alert_id = $3
on conflict (alert_id, channel) do update
set state = 'waiting', problem = '', failures = 0, next_at = now(), made_at = excluded.made_at,
  ends_at = excluded.ends_at, is_again = true`,
  (p) => [p.triedMs, p.channels, p.alertId],
  5000,
);

export type ReadMarksRow = { accountId: string; mark: string };
/**
 * Reads a mark of what is newest on the pages of accounts: another one when that has changed.
 */
export const readMarks: Many<{ accountIds: readonly string[]; newest: bigint | number; unreadMost: bigint | number }, ReadMarksRow> = many(
  "alerts/read-marks",
  `-- alerts/read-marks
select w.account_id as account_id,
  md5(concat_ws(' ', newest.ids, unread.alerts)) as mark
from unnest($1::text[]) as w (account_id)
cross join lateral (
  select string_agg(n.alert_id || case when n.dismissed_at is null then '' else '/' end, ' ') as ids
  from (
    select alert_id, dismissed_at
    from alerts
    where account_id = w.account_id and on_page
    order by raised_at desc, alert_id desc
    limit $2
  ) n
) newest
cross join lateral (
  select count(*) as alerts
  from (
    select from alerts
    where account_id = w.account_id and on_page and dismissed_at is null
    limit $3
  ) u
) unread`,
  (p) => [p.accountIds, p.newest, p.unreadMost],
  (v) => ({ accountId: v[0], mark: v[1] }) as never,
  "",
  5000,
);

export type CountUnreadRow = { unread: number };
/**
 * Counts the alerts on a page that nobody has dismissed, up to a number.
 * `hidesPeople`: true: without those that name people
 */
export const countUnread: One<{ accountId: string; hidesPeople: boolean; unreadMost: bigint | number }, CountUnreadRow> = one(
  "alerts/count-unread",
  `-- alerts/count-unread
select count(*)::integer as unread
from (
  select from alerts
  where account_id = $1 and on_page and dismissed_at is null
    and (not $2::boolean or kind <> 'new_place')
  limit $3
) u`,
  (p) => [p.accountId, p.hidesPeople, p.unreadMost],
  (v) => ({ unread: v[0] }) as never,
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

export type DismissAlertRow = { isListed: boolean; isChanged: boolean };
/**
 * Marks an alert as read. Says whether the account has it on its page, and whether it was unread.
 */
export const dismissAlert: One<{ alertId: string; accountId: string; hidesPeople: boolean }, DismissAlertRow> = one(
  "alerts/dismiss-alert",
  `-- alerts/dismiss-alert
with listed as (
  select alert_id from alerts
  where alert_id = $1 and account_id = $2 and on_page
    and (not $3::boolean or kind <> 'new_place')
), dismissed as (
  update alerts a set dismissed_at = now()
  from listed l
  where a.alert_id = l.alert_id and a.dismissed_at is null
  returning a.alert_id
)
select exists (select from listed) as is_listed, exists (select from dismissed) as is_changed`,
  (p) => [p.alertId, p.accountId, p.hidesPeople],
  (v) => ({ isListed: v[0], isChanged: v[1] }) as never,
  "",
  5000,
);

/**
 * Records the outcome of an attempt that several deliveries shared. A delivery whose time is over
 * does not wait for another one.
 */
export const settleDeliveries: Run<{ state: "waiting" | "sent" | "failed"; waitMs: number; problem: string; alertIds: readonly string[]; channel: string }> = run(
  "alerts/settle-deliveries",
  `-- alerts/settle-deliveries
update alert_deliveries
set state = case
    when $1 = 'waiting' and now() + $2::float8 * interval '1 millisecond' >= ends_at
      then 'failed'
    else $1 end,
  problem = $3, failures = failures + case when $1 = 'sent' then 0 else 1 end,
  next_at = now() + $2::float8 * interval '1 millisecond'
where alert_id = any($4::text[]) and channel = $5 and state = 'waiting'`,
  (p) => [p.state, p.waitMs, p.problem, p.alertIds, p.channel],
  5000,
);

/**
 * Makes deliveries due that a process took and has not tried.
 */
export const giveBackDeliveries: Run<{ alertIds: readonly string[]; channels: readonly string[] }> = run(
  "alerts/give-back-deliveries",
  `-- alerts/give-back-deliveries
update alert_deliveries d
set next_at = now()
from unnest($1::text[], $2::text[]) as t (alert_id, channel)
where d.alert_id = t.alert_id and d.channel = t.channel and d.state = 'waiting'`,
  (p) => [p.alertIds, p.channels],
  5000,
);

/**
 * Gives up all posts of an account that wait: its webhook is switched off.
 */
export const failPosts: Run<{ problem: string; accountId: string }> = run(
  "alerts/fail-posts",
  `-- alerts/fail-posts
update alert_deliveries
set state = 'failed', problem = $1, next_at = now()
where account_id = $2 and channel = 'webhook' and state = 'waiting'`,
  (p) => [p.problem, p.accountId],
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

/**
 * Removes the oldest deliveries, once they have been kept for long enough.
 */
export const removeDeliveries: Run<{ days: number; rows: bigint | number }> = run(
  "alerts/remove-deliveries",
  `-- alerts/remove-deliveries
delete from alert_deliveries
where (alert_id, channel) in (
  select alert_id, channel from alert_deliveries
  where made_at < now() - $1::integer * interval '1 day' and state <> 'waiting'
  order by made_at
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
 * Replaces the settings of an account, and switches its webhook on.
 * `keepsWebhook`: it stays as it is: on, failing or off
 */
export const putSettings: Run<{ accountId: string; belowCredits: bigint | number | null; belowDays: number | null; percents: readonly number[]; rules: string; webhookUrl: string | null; webhookSecret: Buffer | null; webhookForm: "standard" | "slack"; keepsWebhook: boolean }> = run(
  "alerts/put-settings",
  `-- alerts/put-settings
insert into alert_settings
  (account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret,
   webhook_form)
values ($1, $2, $3, $4, $5, $6,
  $7, $8)
on conflict (account_id) do update
set below_credits = excluded.below_credits, below_days = excluded.below_days,
  percents = excluded.percents, rules = excluded.rules, webhook_url = excluded.webhook_url,
  webhook_secret = excluded.webhook_secret, webhook_form = excluded.webhook_form,
  failing_since = case when $9::boolean then alert_settings.failing_since end,
  last_failed_at = case when $9 then alert_settings.last_failed_at end,
  webhook_off_at = case when $9 then alert_settings.webhook_off_at end,
  changed_at = now()`,
  (p) => [p.accountId, p.belowCredits, p.belowDays, p.percents, p.rules, p.webhookUrl, p.webhookSecret, p.webhookForm, p.keepsWebhook],
  5000,
);

export type ReadSettingsRow = { accountId: string; belowCredits: bigint | null; belowDays: number | null; percents: number[]; rules: Json; webhookUrl: string | null; webhookSecret: Buffer | null; webhookForm: "standard" | "slack"; failingSince: Date | null; webhookOffAt: Date | null };
/**
 * Reads the settings of accounts. An account without a row has the defaults.
 */
export const readSettings: Many<{ accountIds: readonly string[] }, ReadSettingsRow> = many(
  "alerts/read-settings",
  `-- alerts/read-settings
select account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret,
  webhook_form, failing_since, webhook_off_at
from alert_settings
where account_id = any($1::text[])`,
  (p) => [p.accountIds],
  (v) => ({ accountId: v[0], belowCredits: v[1], belowDays: v[2], percents: v[3], rules: v[4], webhookUrl: v[5], webhookSecret: v[6], webhookForm: v[7], failingSince: v[8], webhookOffAt: v[9] }) as never,
  "belowCredits belowDays webhookUrl webhookSecret failingSince webhookOffAt",
  5000,
);

/**
 * Stores the settings of an account that has none, so that LockSettings finds a row to lock.
 */
export const ensureSettings: Run<{ accountId: string; belowDays: number | null; percents: readonly number[]; rules: string }> = run(
  "alerts/ensure-settings",
  `-- alerts/ensure-settings
insert into alert_settings (account_id, below_days, percents, rules)
values ($1, $2, $3, $4)
on conflict (account_id) do nothing`,
  (p) => [p.accountId, p.belowDays, p.percents, p.rules],
  5000,
);

export type LockSettingsRow = { accountId: string; belowCredits: bigint | null; belowDays: number | null; percents: number[]; rules: Json; webhookUrl: string | null; webhookSecret: Buffer | null; webhookForm: "standard" | "slack"; failingSince: Date | null; webhookOffAt: Date | null };
/**
 * Reads the settings of an account, and locks them.
 */
export const lockSettings: One<{ accountId: string }, LockSettingsRow> = one(
  "alerts/lock-settings",
  `-- alerts/lock-settings
select account_id, below_credits, below_days, percents, rules, webhook_url, webhook_secret,
  webhook_form, failing_since, webhook_off_at
from alert_settings
where account_id = $1
for update`,
  (p) => [p.accountId],
  (v) => ({ accountId: v[0], belowCredits: v[1], belowDays: v[2], percents: v[3], rules: v[4], webhookUrl: v[5], webhookSecret: v[6], webhookForm: v[7], failingSince: v[8], webhookOffAt: v[9] }) as never,
  "belowCredits belowDays webhookUrl webhookSecret failingSince webhookOffAt",
  5000,
);

export type NotePostFailedRow = { isOff: boolean };
/**
 * Notes that a post to a webhook failed. It is switched off if its receiver is gone, or if for so
 * many days every post failed. A day in which nothing was posted says nothing of the receiver: the
 * days begin anew. No row: it is another one by now, or off already.
 */
export const notePostFailed: Optional<{ isGone: boolean; days: number; accountId: string; webhookUrl: string }, NotePostFailedRow> = optional(
  "alerts/note-post-failed",
  `-- alerts/note-post-failed
update alert_settings s
set failing_since = f.since, last_failed_at = now(),
  -- In milliseconds, as programs read it: lists go on after it.
  webhook_off_at = case
    when $1::boolean or f.since <= now() - $2::integer * interval '1 day'
      then date_trunc('milliseconds', now())
  end
from (
  select account_id,
    case when last_failed_at > now() - interval '1 day' then failing_since else now() end as since
  from alert_settings
  where account_id = $3
  for update
) f
where s.account_id = f.account_id and s.webhook_url = $4 and s.webhook_off_at is null
returning s.webhook_off_at is not null as is_off`,
  (p) => [p.isGone, p.days, p.accountId, p.webhookUrl],
  (v) => ({ isOff: v[0] }) as never,
  "",
  5000,
);

/**
 * Notes that a webhook has taken a post. Changes no row where none had failed.
 */
export const notePostTaken: Run<{ accountId: string; webhookUrl: string }> = run(
  "alerts/note-post-taken",
  `-- alerts/note-post-taken
update alert_settings set failing_since = null, last_failed_at = null
where account_id = $1 and webhook_url = $2 and failing_since is not null
  and webhook_off_at is null`,
  (p) => [p.accountId, p.webhookUrl],
  5000,
);

export type ListSwitchedOffRow = { accountId: string; webhookUrl: string; failingSince: Date; webhookOffAt: Date };
/**
 * Lists the webhooks that were switched off within a week, newest first.
 * `before`: only those of before this time; null: from the newest
 * `beforeId`: or at this time, of an account before this one
 */
export const listSwitchedOff: Many<{ before: Date | string | null; beforeId: string; rows: bigint | number }, ListSwitchedOffRow> = many(
  "alerts/list-switched-off",
  `-- alerts/list-switched-off
select account_id, webhook_url as webhook_url, failing_since as failing_since,
  webhook_off_at as webhook_off_at
from alert_settings
where webhook_off_at > now() - interval '7 days'
  and ($1::timestamptz is null or (webhook_off_at, account_id) < ($1, $2::text))
order by webhook_off_at desc, account_id desc
limit $3`,
  (p) => [p.before, p.beforeId, p.rows],
  (v) => ({ accountId: v[0], webhookUrl: v[1], failingSince: v[2], webhookOffAt: v[3] }) as never,
  "",
  5000,
);

export type ListSecretsRow = { accountId: string; webhookSecret: Buffer };
/**
 * Lists the signing secrets of webhooks as they are stored, by account.
 */
export const listSecrets: Many<{ after: string; rows: bigint | number }, ListSecretsRow> = many(
  "alerts/list-secrets",
  `-- alerts/list-secrets
select account_id, webhook_secret as webhook_secret
from alert_settings
where webhook_secret is not null and account_id > $1
order by account_id
limit $2`,
  (p) => [p.after, p.rows],
  (v) => ({ accountId: v[0], webhookSecret: v[1] }) as never,
  "",
  5000,
);

/**
 * Stores a signing secret in another form. Changes no row: it is another one by now.
 */
export const replaceSecret: Run<{ sealed: Buffer; accountId: string; stored: Buffer }> = run(
  "alerts/replace-secret",
  `-- alerts/replace-secret
update alert_settings set webhook_secret = $1
where account_id = $2 and webhook_secret = $3`,
  (p) => [p.sealed, p.accountId, p.stored],
  5000,
);
