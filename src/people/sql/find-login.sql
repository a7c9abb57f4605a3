-- people/sql/find-login.sql
-- The person with this login who may sign in, and the hash of the password. Null: no password.
-- $1 login
select p.person_id, w.hash
  from people p
  left join passwords w on w.person_id = p.person_id
 where p.login = $1 and p.disabled_at is null;
