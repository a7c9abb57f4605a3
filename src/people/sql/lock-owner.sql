-- people/sql/lock-owner.sql
-- Locks an owner of an account until the end of the transaction. No row: the person is none.
-- $1 account_id  $2 person_id
select m.person_id
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = $1 and m.person_id = $2 and m.role = 'owner' and p.disabled_at is null
   for share of m;
