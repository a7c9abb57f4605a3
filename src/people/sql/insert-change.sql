-- people/sql/insert-change.sql
-- Tells every process that what it knows of a person or an admin token is out of date.
-- $1 change_id  $2 person_id or token_id
insert into people_changes (change_id, subject_id) values ($1, $2);
