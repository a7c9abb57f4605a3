-- timeout_ms=5000

-- name: InsertAlerts :many
-- Raises alerts that nobody has raised, with their deliveries. Returns those that are new.
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
select alert_id from raised;

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
-- Takes mails that are due, for at most one kind and person of each account, with the others that
-- are due to the same person about the same kind: one mail tells of all of them. An account gets
-- one mail an hour to each person about each kind, and so many a day. Neither holds for what the
-- operators get, unless accounts cause it. A process settles what it takes within the lease.
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
      ) < :per_day::bigint
    ))
  order by d.account_id, d.next_at
), taken as (
  select d.alert_id, d.channel
  from alert_deliveries d
  join alerts a using (alert_id)
  join (select * from chosen order by next_at limit :rows) c
    on c.account_id = d.account_id and c.channel = d.channel and c.kind = a.kind
  where d.state = 'waiting' and d.channel <> 'webhook' and d.next_at <= now()
    and (d.alert_id = c.alert_id or not c.is_unbounded)
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
select alert_id, channel, state, problem
from alert_deliveries
where alert_id = any(:alert_ids::text[])
order by alert_id, channel;

-- name: SetProgress :run
-- Notes that the events before this time are known.
update alert_progress set events_at = :events_at::timestamptz;

-- name: DismissAlert :run
-- Marks an alert as read. Changes no row: the account has no such alert on its page.
update alerts
set dismissed_at = coalesce(dismissed_at, now())
where alert_id = :alert_id and account_id = :account_id and on_page
  and (not :hides_people::boolean or kind <> 'new_place');

-- name: SettleDelivery :run
-- Records the outcome of an attempt. A delivery whose time is over does not wait for another one.
update alert_deliveries
set state = case
    when :state = 'waiting' and now() + :wait_ms::float8 * interval '1 millisecond' >= ends_at
      then 'failed'
    else :state end,
  problem = :problem, failures = failures + case when :state = 'sent' then 0 else 1 end,
  next_at = now() + :wait_ms::float8 * interval '1 millisecond'
where alert_id = :alert_id and channel = :channel and state = 'waiting';

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
