-- people/sql/lock-members.sql
-- The members of an account, locked until the end of the transaction.
-- $1 account_id
select person_id, role from members where account_id = $1 order by person_id for update;
