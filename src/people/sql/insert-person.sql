-- people/sql/insert-person.sql
-- Adds a person. No row: the login is taken.
-- $1 person_id  $2 login  $3 name  $4 operator  $5 confirmed address; null: none
insert into people (person_id, login, name, operator, email, email_verified_at)
values ($1, $2, $3, $4, $5::text, case when $5::text is not null then now() end)
on conflict (login) do nothing
returning person_id;
