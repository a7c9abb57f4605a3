-- people/sql/list-accounts-of-person.sql
-- The accounts of a person, in the order of their names.
-- $1 person_id
select m.account_id, a.name, m.role, a.status, a.status_reason
  from members m
  join accounts a on a.account_id = m.account_id
 where m.person_id = $1
 order by a.name, m.account_id;
