-- people/sql/list-sessions.sql
-- The open sessions of a person, newest first.
-- $1 person_id  $2 most milliseconds between two uses
select session_id, made_at, used_at, ends_at, address, agent
  from sessions
 where person_id = $1 and ended_at is null
   and ends_at > now() and used_at > now() - $2::float8 * interval '1 millisecond'
 order by made_at desc, session_id desc
 limit 1000;
