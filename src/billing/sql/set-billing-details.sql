-- Replaces whom the documents of an account name. The caller has locked it.
-- $1 account_id  $2 name  $3 address  $4 tax id
update accounts
set billing_name = $2, billing_address = $3, billing_tax_id = $4
where account_id = $1
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id;
