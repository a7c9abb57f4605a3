-- people/sql/delete-password.sql
-- Removes the password of a person. No row: there was none.
-- $1 person_id
delete from passwords where person_id = $1 returning person_id;
