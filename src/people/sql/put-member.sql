-- people/sql/put-member.sql
-- Adds a person to an account. A member keeps the higher of both roles.
-- $1 account_id  $2 person_id  $3 role
insert into members as m (account_id, person_id, role) values ($1, $2, $3)
on conflict (account_id, person_id) do update
   set role = case when array_position(array['viewer', 'member', 'owner'], m.role)
                      >= array_position(array['viewer', 'member', 'owner'], excluded.role)
                   then m.role else excluded.role end;
