-- keys/sql/remove-changes.sql
-- Forgets changes that every running process has read long ago.
delete from key_changes where changed_at < now() - interval '1 day';
