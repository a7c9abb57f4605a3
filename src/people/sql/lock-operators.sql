-- people/sql/lock-operators.sql
-- The operator admins who may sign in, locked until the end of the transaction.
select person_id from people
 where operator = 'admin' and disabled_at is null
 order by person_id
   for update;
