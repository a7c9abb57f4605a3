-- people/sql/list-people.sql
-- People in the order of their logins. One whose login or name contains a text.
-- $1 text, empty: everybody  $2 after this login  $3 limit
select p.person_id, p.login, p.name, p.operator, p.email, p.created_at, p.disabled_at,
       (select max(s.used_at) from sessions s where s.person_id = p.person_id) as last_seen_at
  from people p
 where p.login > $2
   and ($1::text = '' or strpos(p.login, lower($1::text)) > 0
        or strpos(lower(p.name), lower($1::text)) > 0)
 order by p.login
 limit $3;
