-- people/sql/delete-sessions.sql
-- Deletes the sessions of a person, with their addresses.
-- $1 person_id
delete from sessions where person_id = $1;
