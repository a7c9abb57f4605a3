-- people/sql/lock-members.sql
-- The members of an account, locked until the end of the transaction, and whether they may sign in.
-- $1 account_id
select m.person_id, m.role, p.disabled_at is null as enabled
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = $1
 order by m.person_id
   for update of m;
