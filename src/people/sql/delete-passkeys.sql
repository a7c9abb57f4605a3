-- people/sql/delete-passkeys.sql
-- Removes all passkeys of a person.
-- $1 person_id
delete from passkeys where person_id = $1;
