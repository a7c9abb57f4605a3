-- people/sql/insert-person.sql
-- Adds a person. No row: the login is taken.
-- $1 person_id  $2 login  $3 name  $4 operator
insert into people (person_id, login, name, operator) values ($1, $2, $3, $4)
on conflict (login) do nothing
returning person_id;
