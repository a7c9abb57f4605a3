-- Of these alerts, those that nobody has raised.
-- $1 alert_ids
select w.alert_id
from unnest($1::text[]) as w (alert_id)
where not exists (select from alerts a where a.alert_id = w.alert_id);
