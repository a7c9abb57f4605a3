-- people/sql/delete-member.sql
-- Removes a member.
-- $1 account_id  $2 person_id
delete from members where account_id = $1 and person_id = $2;
