-- people/sql/list-members.sql
-- The members of an account in the order of their logins, or one of them.
-- $1 account_id  $2 person_id; null: all
select m.person_id, p.login, p.name, m.role, m.joined_at,
       (select max(s.used_at) from sessions s where s.person_id = m.person_id) as last_seen_at
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = $1 and ($2::text is null or m.person_id = $2)
 order by p.login
 limit 1000;
