-- people/sql/lock-person.sql
-- A person, locked until the end of the transaction.
-- $1 person_id
select person_id, login, name, operator, email, created_at, disabled_at
  from people where person_id = $1 and deleted_at is null for update;
