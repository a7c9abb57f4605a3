-- Lets the other deliveries to the webhook of an account wait: its receiver is away.
-- $1 account_id  $2 milliseconds
update alert_deliveries
set next_at = now() + $2::float8 * interval '1 millisecond'
where account_id = $1 and channel = 'webhook' and state = 'waiting'
  and next_at < now() + $2::float8 * interval '1 millisecond';
