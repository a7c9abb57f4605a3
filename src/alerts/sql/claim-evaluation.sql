-- Takes on the next evaluation. No row: it is not due, or another process is at it.
-- $1 milliseconds between two  $2 lease in milliseconds
with before as (
  select events_at from alert_progress
  where evaluated_at <= now() - $1::float8 * interval '1 millisecond'
    and (leased_until is null or leased_until < now())
  for update
)
update alert_progress p
set leased_until = now() + $2::float8 * interval '1 millisecond'
from before b
returning b.events_at, now() as began_at;
