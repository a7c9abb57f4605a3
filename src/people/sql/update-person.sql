-- people/sql/update-person.sql
-- Sets the operator role of a person, and whether the person is disabled.
-- $1 person_id  $2 operator  $3 disabled
update people
   set operator = $2,
       disabled_at = case when $3::boolean then coalesce(disabled_at, now()) end
 where person_id = $1;
