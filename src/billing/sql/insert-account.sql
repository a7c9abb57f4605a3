-- Creates an account with one empty pool per family.
-- $1 account_id  $2 name
with account as (
  insert into accounts (account_id, name) values ($1, $2)
  returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
    billing_address, billing_tax_id
), pools as (
  insert into pools (account_id, "family")
  select account_id, "family" from account, unnest(array['v1', 'v2']) as "family"
)
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id
from account;
