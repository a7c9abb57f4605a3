-- people/sql/end-sessions.sql
-- Ends all open sessions of a person but one.
-- $1 person_id  $2 session_id that stays open; null: none
update sessions set ended_at = now()
 where person_id = $1 and ended_at is null and session_id is distinct from $2::text;
