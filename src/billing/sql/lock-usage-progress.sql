-- Locks the progress of the days, so that one process closes them, and returns it with the UTC day.
select closed_to, hours_from, tags_to, (now() at time zone 'utc')::date as today
from usage_progress
for update;
