-- people/sql/count-ways-in.sql
-- How many passkeys and passwords a person has.
-- $1 person_id
select (select count(*) from passkeys where person_id = $1)::integer as passkeys,
       (select count(*) from passwords where person_id = $1)::integer as passwords;
