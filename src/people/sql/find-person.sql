-- people/sql/find-person.sql
-- A person, with the last use of a session.
-- $1 person_id
select p.person_id, p.login, p.name, p.operator, p.email, p.created_at, p.disabled_at,
       (select max(s.used_at) from sessions s where s.person_id = p.person_id) as last_seen_at
  from people p
 where p.person_id = $1 and p.deleted_at is null;
