-- Gives each key its row for the current UTC month, where it has none yet.
-- $1 key_ids
insert into key_months (key_id, month)
select key_id, date_trunc('month', now() at time zone 'utc')::date
from keys
where key_id = any($1::text[])
order by key_id
on conflict do nothing;
