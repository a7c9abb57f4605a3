-- people/sql/find-method.sql
-- How the person of a session, which has not ended, proved who he is.
-- $1 session_id
select method from sessions where session_id = $1 and ended_at is null;
