-- people/sql/find-password.sql
-- The hash of a person's password. No row: no password.
-- $1 person_id
select hash from passwords where person_id = $1;
