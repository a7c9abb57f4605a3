-- timeout_ms=5000

-- name: InsertAlerts :many
-- Raises alerts that nobody has raised, with their deliveries. Returns the accounts of new ones.
-- :delivered_ids  the alert of each delivery
with raised as (
  insert into alerts (alert_id, account_id, kind, facts, on_page)
  select w.alert_id, w.account_id, w.kind, w.facts::jsonb, w.on_page
  from unnest(:alert_ids::text[], :account_ids::text[], :kinds::text[], :facts::text[],
      :on_page::boolean[])
    as w (alert_id, account_id, kind, facts, on_page)
  on conflict do nothing
  returning alert_id, account_id
), delivered as (
  insert into alert_deliveries (alert_id, channel, account_id, ends_at)
  select d.alert_id, d.channel, r.account_id,
    now() + d.tried_ms * interval '1 millisecond'
  from unnest(:delivered_ids::text[], :channels::text[], :tried_ms::float8[])
    as d (alert_id, channel, tried_ms)
  join raised r using (alert_id)
)
select account_id from raised;

-- name: ReadProgress :one
-- Up to when events are known, and the time.
select events_at, now() as "began_at!" from alert_progress;

-- name: ClaimPosts :many
-- Takes posts to webhooks that are due, at most one of each account, so that an account whose
-- receiver is slow keeps no other one waiting. A process settles what it takes within the lease;
-- otherwise the delivery is due again.
with chosen as (
  select distinct on (account_id) alert_id, channel, next_at
  from alert_deliveries
  where state = 'waiting' and channel = 'webhook' and next_at <= now()
  order by account_id, next_at
), taken as (
  select d.alert_id, d.channel
  from alert_deliveries d
  join (select alert_id, channel from chosen order by next_at limit :rows) c
    using (alert_id, channel)
  where d.state = 'waiting' and d.next_at <= now()
  for update of d skip locked
), leased as (
  update alert_deliveries d
  set next_at = now() + :lease_ms::float8 * interval '1 millisecond'
  from taken t
  where d.alert_id = t.alert_id and d.channel = t.channel
  returning d.alert_id, d.channel, d.failures
)
select l.alert_id, l.channel, l.failures, a.account_id, a.kind, a.facts, a.raised_at
from leased l
join alerts a using (alert_id);

-- name: ClaimMails :many
-- Takes mails that are due: of each account one, with the others that it tells of. An account gets
-- one mail an hour to each person about each kind, which tells of all that are due; so many a day;
-- and of these so many about payments, each for one event, until no more are left than persons get
-- them: the last mail to each of these tells of all that are due. None of it holds for what a
-- person sends again, nor for what the operators get, unless accounts cause it. A process settles
-- what it takes within the lease.
-- :per_day  mails of an account
-- :payments_per_day  those about payments
with due as (
  select d.alert_id, d.channel, d.account_id, d.next_at,
    case when a.kind like 'payment\_%' then 'payment' else a.kind end as topic,
    d.is_again or (a.account_id = '' and a.kind <> 'order_waiting') as is_unbounded
  from alert_deliveries d
  join alerts a using (alert_id)
  where d.state = 'waiting' and d.channel <> 'webhook' and d.next_at <= now()
), recent as (
  select o.account_id, o.channel,
    case when b.kind like 'payment\_%' then 'payment' else b.kind end as topic,
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
      and :payments_per_day::bigint - coalesce(u.payments, 0) > p.persons as is_alone
  from due d
  left join recent r
    on r.account_id = d.account_id and r.channel = d.channel and r.topic = d.topic
  left join used u on u.account_id = d.account_id
  left join payees p on p.account_id = d.account_id
  where d.is_unbounded or (
    not coalesce(r.is_tried, false)
    and coalesce(u.mails, 0) < :per_day::bigint
    and case d.topic
      when 'payment' then coalesce(u.payments, 0) < :payments_per_day
      else coalesce(r.sent_at <= now() - interval '1 hour', true) end
  )
  order by d.account_id, d.next_at, d.alert_id
), taken as (
  select d.alert_id, d.channel
  from alert_deliveries d
  join alerts a using (alert_id)
  join (select * from chosen order by next_at limit :rows) c
    on c.account_id = d.account_id and c.channel = d.channel
    and c.topic = case when a.kind like 'payment\_%' then 'payment' else a.kind end
  where d.state = 'waiting' and d.channel <> 'webhook' and d.next_at <= now()
    -- A notice that a person sends again leaves in a mail of its own.
    and (d.alert_id = c.alert_id or not c.is_alone and not d.is_again)
  for update of d skip locked
), leased as (
  update alert_deliveries d
  set next_at = now() + :lease_ms::float8 * interval '1 millisecond'
  from taken t
  where d.alert_id = t.alert_id and d.channel = t.channel
  returning d.alert_id, d.channel, d.failures
)
select l.alert_id as "alert_id!", l.channel as "channel!", l.failures as "failures!",
  a.account_id as "account_id!", a.kind as "kind!", a.facts as "facts!", a.raised_at as "raised_at!"
from leased l
join alerts a using (alert_id)
order by a.raised_at desc, a.alert_id desc;

-- name: FindNew :many
-- Of these alerts, those that nobody has raised.
select w.alert_id as "alert_id!"
from unnest(:alert_ids::text[]) as w (alert_id)
where not exists (select from alerts a where a.alert_id = w.alert_id);

-- name: ListAlerts :many
-- Lists alerts that are on the page, newest first.
-- :unread  true: without those that somebody has dismissed
-- :hides_people  true: without those that name people
-- :before?  only those before this time; null: from the newest
-- :before_id?  or at this time, before this alert
select alert_id, account_id, kind, facts, raised_at, dismissed_at
from alerts
where account_id = :account_id and on_page
  and (not :unread::boolean or dismissed_at is null)
  and (not :hides_people::boolean or kind <> 'new_place')
  and (:before::timestamptz is null or (raised_at, alert_id) < (:before, :before_id::text))
order by raised_at desc, alert_id desc
limit :rows;

-- name: ListDeliveries :many
-- Lists what became of the deliveries of alerts.
select alert_id, channel, state, problem, failures, next_at
from alert_deliveries
where alert_id = any(:alert_ids::text[])
order by alert_id, channel;

-- name: ListAccountDeliveries :many
-- Lists the deliveries of an account, newest first, each with its alert.
-- :failed  true: only those that were given up
-- :before?  only those made before this time; null: from the newest
-- :before_id?  or at this time, before this alert and channel
-- :before_channel?
select d.alert_id, d.channel, d.state, d.problem, d.failures, d.next_at, d.made_at, a.kind, a.facts
from alert_deliveries d
join alerts a using (alert_id)
where d.account_id = :account_id and (not :failed::boolean or d.state = 'failed')
  and (:before::timestamptz is null
    or (d.made_at, d.alert_id, d.channel) < (:before, :before_id::text, :before_channel::text))
order by d.made_at desc, d.alert_id desc, d.channel desc
limit :rows;

-- name: ListAccountMails :many
-- Lists the mails of an account, newest first, each with its alert.
-- :before?  only those made before this time; null: from the newest
-- :before_id?  or at this time, before this alert and channel
-- :before_channel?
select d.alert_id, d.channel, d.state, d.problem, d.failures, d.next_at, d.made_at, a.kind, a.facts
from alert_deliveries d
join alerts a using (alert_id)
-- As a range, which the index looks through alone: posts may be many.
where d.account_id = :account_id and d.channel >= 'mail:' and d.channel < 'mail;'
  and (:before::timestamptz is null
    or (d.made_at, d.alert_id, d.channel) < (:before, :before_id::text, :before_channel::text))
order by d.made_at desc, d.alert_id desc, d.channel desc
limit :rows;

-- name: FindAlert :optional
-- Finds an alert of an account, also one that is not on its page.
select alert_id, account_id, kind, facts, raised_at
from alerts
where alert_id = :alert_id and account_id = :account_id;

-- name: PostAgain :run
-- Lets an alert be posted again, at once: also one that waits for longer than a process that posts
-- it is waited for. Changes no row: it was not posted, or that was forgotten.
update alert_deliveries
set next_at = case
    when state = 'waiting' and next_at <= now() + :lease_ms::float8 * interval '1 millisecond'
      then next_at
    else now() end,
  state = 'waiting', problem = '', failures = 0,
  ends_at = now() + :tried_ms::float8 * interval '1 millisecond'
where alert_id = :alert_id and account_id = :account_id and channel = 'webhook';

-- name: MailAgain :run
-- Lets an alert be mailed to these persons, also to those who had it before.
-- :channels  `mail:` and each person
insert into alert_deliveries (alert_id, channel, account_id, ends_at, is_again)
select a.alert_id, c.channel, a.account_id,
  now() + :tried_ms::float8 * interval '1 millisecond', true
from alerts a
cross join unnest(:channels::text[]) as c (channel)
where a.alert_id = :alert_id
on conflict (alert_id, channel) do update
set state = 'waiting', problem = '', failures = 0, next_at = now(), made_at = excluded.made_at,
  ends_at = excluded.ends_at, is_again = true;

-- name: ReadMarks :many
-- Reads a mark of what is newest on the pages of accounts: another one when that has changed.
select w.account_id as "account_id!",
  md5(concat_ws(' ', newest.ids, unread.alerts)) as "mark!"
from unnest(:account_ids::text[]) as w (account_id)
cross join lateral (
  select string_agg(n.alert_id || case when n.dismissed_at is null then '' else '/' end, ' ') as ids
  from (
    select alert_id, dismissed_at
    from alerts
    where account_id = w.account_id and on_page
    order by raised_at desc, alert_id desc
    limit :newest
  ) n
) newest
cross join lateral (
  select count(*) as alerts
  from (
    select from alerts
    where account_id = w.account_id and on_page and dismissed_at is null
    limit :unread_most
  ) u
) unread;

-- name: CountUnread :one
-- Counts the alerts on a page that nobody has dismissed, up to a number.
-- :hides_people  true: without those that name people
select count(*)::integer as "unread!"
from (
  select from alerts
  where account_id = :account_id and on_page and dismissed_at is null
    and (not :hides_people::boolean or kind <> 'new_place')
  limit :unread_most
) u;

-- name: SetProgress :run
-- Notes that the events before this time are known.
update alert_progress set events_at = :events_at::timestamptz;

-- name: DismissAlert :one
-- Marks an alert as read. Says whether the account has it on its page, and whether it was unread.
with listed as (
  select alert_id from alerts
  where alert_id = :alert_id and account_id = :account_id and on_page
    and (not :hides_people::boolean or kind <> 'new_place')
), dismissed as (
  update alerts a set dismissed_at = now()
  from listed l
  where a.alert_id = l.alert_id and a.dismissed_at is null
  returning a.alert_id
)
select exists (select from listed) as "is_listed!", exists (select from dismissed) as "is_changed!";

-- name: SettleDeliveries :run
-- Records the outcome of an attempt that several deliveries shared. A delivery whose time is over
-- does not wait for another one.
update alert_deliveries
set state = case
    when :state = 'waiting' and now() + :wait_ms::float8 * interval '1 millisecond' >= ends_at
      then 'failed'
    else :state end,
  problem = :problem, failures = failures + case when :state = 'sent' then 0 else 1 end,
  next_at = now() + :wait_ms::float8 * interval '1 millisecond'
where alert_id = any(:alert_ids::text[]) and channel = :channel and state = 'waiting';

-- name: GiveBackDeliveries :run
-- Makes deliveries due that a process took and has not tried.
update alert_deliveries d
set next_at = now()
from unnest(:alert_ids::text[], :channels::text[]) as t (alert_id, channel)
where d.alert_id = t.alert_id and d.channel = t.channel and d.state = 'waiting';

-- name: FailPosts :run
-- Gives up all posts of an account that wait: its webhook is switched off.
update alert_deliveries
set state = 'failed', problem = :problem, next_at = now()
where account_id = :account_id and channel = 'webhook' and state = 'waiting';

-- name: PostponeWebhooks :run
-- Lets the other deliveries to the webhook of an account wait: its receiver is away.
update alert_deliveries
set next_at = now() + :wait_ms::float8 * interval '1 millisecond'
where account_id = :account_id and channel = 'webhook' and state = 'waiting'
  and next_at < now() + :wait_ms::float8 * interval '1 millisecond';

-- name: RemoveAlerts :run
-- Removes the oldest alerts, with their deliveries, once they have been kept for long enough.
delete from alerts
where alert_id in (
  select alert_id from alerts
  where raised_at < now() - :days::integer * interval '1 day'
  order by raised_at
  limit :rows
);

-- name: RemoveDeliveries :run
-- Removes the oldest deliveries, once they have been kept for long enough.
delete from alert_deliveries
where (alert_id, channel) in (
  select alert_id, channel from alert_deliveries
  where made_at < now() - :days::integer * interval '1 day' and state <> 'waiting'
  order by made_at
  limit :rows
);

-- name: OpenOutages :many
-- Notes that these models are unusable at their providers, and returns their outages.
insert into provider_outages (provider, model)
select o.provider, o.model from unnest(:providers::text[], :models::text[]) as o (provider, model)
on conflict (provider, model) do update set answered_at = null
returning provider, model, opened_at;

-- name: AnswerOutages :run
-- Notes that these models are answered again.
update provider_outages p
set answered_at = now()
from unnest(:providers::text[], :models::text[]) as o (provider, model)
where p.provider = o.provider and p.model = o.model and p.answered_at is null;

-- name: ListEndedOutages :many
-- Lists the outages of models that have been answered for this long.
select provider, model, opened_at
from provider_outages
where answered_at <= now() - :answered_ms::float8 * interval '1 millisecond';

-- name: RemoveOutage :run
-- Ends an outage, unless it has begun again.
delete from provider_outages
where provider = :provider and model = :model and answered_at is not null;
