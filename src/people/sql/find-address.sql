-- people/sql/find-address.sql
-- One row if somebody has this address, or signs in with it.
-- $1 address
select 1 as found from people where login = $1 or email = $1 limit 1;
