-- people/sql/delete-links.sql
-- Deletes the links to a person, and those that propose a login.
-- $1 person_id  $2 login
delete from links where person_id = $1 or login = $2;
