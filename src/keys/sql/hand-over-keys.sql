-- keys/sql/hand-over-keys.sql
-- Lets another person manage the keys of an account that somebody manages, revoked ones included.
-- $1 account_id  $2 managed_by  $3 managed_by from now on; empty: nobody
update keys set managed_by = $3 where account_id = $1 and managed_by = $2;
