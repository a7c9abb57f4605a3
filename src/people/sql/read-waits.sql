-- people/sql/read-waits.sql
-- How long the subjects have to wait before the next password attempt. No row: none has to.
-- $1 subjects
select max(extract(epoch from (wait_until - now())))::float8 * 1000 as wait_ms
  from sign_in_failures
 where subject = any($1::bytea[]) and wait_until > now()
having count(*) > 0;
