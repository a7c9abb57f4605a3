-- Reads accounts.
-- $1 account_ids
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id
from accounts
where account_id = any($1::text[]);
