-- people/sql/end-sessions-of-passkey.sql
-- Ends the open sessions that a passkey began, but one.
-- $1 person_id  $2 passkey_id  $3 session_id that stays open
update sessions set ended_at = now()
 where person_id = $1 and passkey_id = $2 and session_id <> $3 and ended_at is null;
