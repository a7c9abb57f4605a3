-- people/sql/find-sessions.sql
-- The open sessions with these digests, their people and the accounts of the people, and records
-- their use, at most once a minute. No row: there is none, it ended, or the person is disabled.
-- $1 digests  $2 most milliseconds between two uses
with open as (
  select digest from sessions
   where digest = any($1::bytea[]) and ended_at is null
     and ends_at > now() and used_at > now() - $2::float8 * interval '1 millisecond'
), touched as (
  update sessions set used_at = now()
   where digest in (select s.digest from sessions s join open o on o.digest = s.digest
                     where s.used_at < now() - interval '50 seconds'
                       for update of s skip locked)
)
select s.digest, s.session_id, s.person_id, s.method, s.strong_until, p.operator,
       (extract(epoch from (s.ends_at - now())) * 1000)::float8 as ends_in_ms,
       array(select m.account_id from members m
              where m.person_id = s.person_id order by m.account_id) as account_ids,
       array(select m.role from members m
              where m.person_id = s.person_id order by m.account_id) as roles
  from sessions s
  join open o on o.digest = s.digest
  join people p on p.person_id = s.person_id
 where p.disabled_at is null;
