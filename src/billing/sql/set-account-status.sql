-- Suspends, resumes or closes an account. The caller has locked it.
-- $1 account_id  $2 status  $3 reason
update accounts
set status = $2, status_reason = $3, status_changed_at = now()
where account_id = $1
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id;
