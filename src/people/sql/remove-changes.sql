-- people/sql/remove-changes.sql
-- Deletes changes that every running process read long ago.
delete from people_changes where changed_at < now() - interval '1 day';
