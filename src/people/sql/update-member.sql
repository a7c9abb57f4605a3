-- people/sql/update-member.sql
-- Sets the role of a member.
-- $1 account_id  $2 person_id  $3 role
update members set role = $3 where account_id = $1 and person_id = $2;
