-- people/sql/set-email.sql
-- Sets or removes the address of a person, who is locked.
-- $1 person_id  $2 confirmed address; null: none
update people
   set email = $2::text, email_verified_at = case when $2::text is not null then now() end
 where person_id = $1;
