-- people/sql/delete-person.sql
-- Leaves only the id of a person, so that nobody else gets it.
-- $1 person_id
update people
   set login = null, name = '', email = null, email_verified_at = null, operator = 'none',
       disabled_at = coalesce(disabled_at, now()), deleted_at = now()
 where person_id = $1;
