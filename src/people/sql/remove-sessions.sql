-- people/sql/remove-sessions.sql
-- Deletes some of the sessions that ended long ago. A session also ends when it is not used.
-- $1 days since their end  $2 most milliseconds between two uses  $3 most rows
with old as (
  select digest
    from sessions
   where made_at < now() - $1::integer * interval '1 day'
     and least(ended_at, ends_at, used_at + $2::float8 * interval '1 millisecond')
         < now() - $1::integer * interval '1 day'
   order by made_at
   limit $3
)
delete from sessions where digest in (select digest from old)
returning session_id;
