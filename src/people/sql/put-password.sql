-- people/sql/put-password.sql
-- Sets the password of a person.
-- $1 person_id  $2 hash
insert into passwords (person_id, hash) values ($1, $2)
on conflict (person_id) do update set hash = excluded.hash, changed_at = now();
