-- people/sql/claim-account.sql
-- Names the account of the first start, unless it has one. Returns the one that it has now.
-- $1 account_id
update installation set account_id = coalesce(account_id, $1) returning account_id;
