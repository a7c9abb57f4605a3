-- Ends an evaluation.
-- $1 events before are known; null: as before
update alert_progress
set evaluated_at = now(), leased_until = null, events_at = coalesce($1::timestamptz, events_at);
