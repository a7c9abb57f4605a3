-- people/sql/remove-sessions.sql
-- Deletes sessions that nobody can use any more, after a month.
delete from sessions
 where least(coalesce(ended_at, ends_at), ends_at) < now() - interval '30 days';
