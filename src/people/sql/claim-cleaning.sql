-- people/sql/claim-cleaning.sql
-- Takes on the daily removal of old data. No row: a process did so within the last day.
update installation set cleaned_at = now()
 where cleaned_at is null or cleaned_at <= now() - interval '1 day'
returning cleaned_at;
