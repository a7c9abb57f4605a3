-- Finds an account. No row: no such account.
-- $1 account_id
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id
from accounts
where account_id = $1;
