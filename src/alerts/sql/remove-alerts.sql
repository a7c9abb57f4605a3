-- Removes the oldest alerts, with their deliveries, once they have been kept for long enough.
-- $1 days  $2 rows at most
delete from alerts
where alert_id in (
  select alert_id from alerts
  where raised_at < now() - $1::integer * interval '1 day'
  order by raised_at
  limit $2
)
returning alert_id;
