-- keys/sql/count-managed.sql
-- How many keys of an account somebody manages, without the revoked ones.
-- $1 account_id  $2 managed_by
select count(*)::int4 as keys
  from keys
 where account_id = $1 and managed_by = $2 and status = 'active';
