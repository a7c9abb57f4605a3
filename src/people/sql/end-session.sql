-- people/sql/end-session.sql
-- Ends an open session of a person. No row: there is none.
-- $1 person_id  $2 session_id
update sessions set ended_at = now()
 where person_id = $1 and session_id = $2 and ended_at is null
returning session_id;
