-- people/sql/confirm-session.sql
-- Records that the person of an open session proved who he is. No row: the session ended.
-- $1 session_id  $2 confirmed for milliseconds
update sessions set strong_until = now() + $2::float8 * interval '1 millisecond'
 where session_id = $1 and ended_at is null
returning strong_until;
