-- Changes the name of an account. The caller has locked it.
-- $1 account_id  $2 name
update accounts
set name = $2
where account_id = $1
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id;
