-- people/sql/delete-identities.sql
-- Removes the identities of a person.
-- $1 person_id
delete from identities where person_id = $1;
