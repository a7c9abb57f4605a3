-- Lists what became of the deliveries of alerts.
-- $1 alert_ids
select alert_id, channel, state, problem
from alert_deliveries
where alert_id = any($1::text[])
order by alert_id, channel;
