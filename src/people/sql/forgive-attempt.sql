-- people/sql/forgive-attempt.sql
-- Takes the count of an attempt back, because it succeeded. The login starts anew in its network.
-- $1 subjects
update sign_in_failures
   set failures = case when kind = 'pair' then 0 else greatest(0, failures - 1) end,
       wait_until = 'epoch'
 where subject = any($1::bytea[]);
