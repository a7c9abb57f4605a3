-- people/sql/has-operator.sql
-- One row if an operator admin may sign in.
select 1 as found from people where operator = 'admin' and disabled_at is null limit 1;
