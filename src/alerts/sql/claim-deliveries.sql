-- Takes deliveries that are due, at most one of each account, so that an account whose receiver is
-- slow keeps no other one waiting. A process settles what it takes within the lease; otherwise the
-- delivery is due again.
-- $1 true: to webhooks; false: by mail  $2 rows at most  $3 lease in milliseconds
with chosen as (
  select distinct on (account_id) alert_id, channel, next_at
  from alert_deliveries
  where state = 'waiting' and (channel = 'webhook') = $1::boolean and next_at <= now()
  order by account_id, next_at
), taken as (
  select d.alert_id, d.channel
  from alert_deliveries d
  join (select alert_id, channel from chosen order by next_at limit $2) c
    using (alert_id, channel)
  where d.state = 'waiting' and d.next_at <= now()
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
join alerts a using (alert_id);
