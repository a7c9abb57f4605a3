-- Records the outcome of an attempt. A delivery whose time is over does not wait for another one.
-- $1 alert_id  $2 channel  $3 state  $4 problem  $5 milliseconds to the next attempt
update alert_deliveries
set state = case
    when $3 = 'waiting' and now() + $5::float8 * interval '1 millisecond' >= ends_at then 'failed'
    else $3 end,
  problem = $4, failures = failures + case when $3 = 'sent' then 0 else 1 end,
  next_at = now() + $5::float8 * interval '1 millisecond'
where alert_id = $1 and channel = $2 and state = 'waiting';
