-- people/sql/remove-failures.sql
-- Deletes counts that have no effect any more.
delete from sign_in_failures
 where last_at < now() - interval '1 hour' and wait_until < now();
