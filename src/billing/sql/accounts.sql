-- name: InsertAccount :one
-- Creates an account with one empty pool per family.
with account as (
  insert into accounts (account_id, name) values (:account_id, :name)
  returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
    billing_address, billing_tax_id, price_list_id, price_list_at
), pools as (
  insert into pools (account_id, "family")
  select account_id, "family" from account, unnest(array['v1', 'v2']) as "family"
)
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at
from account;

-- name: FindAccount :optional
-- Finds an account. No row: no such account.
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at
from accounts
where account_id = :account_id;

-- name: ReadAccountStatus :optional
-- Reads the status of an account. No row: no such account.
select status from accounts where account_id = :account_id;

-- name: ReadAccounts :many
-- Reads accounts.
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at
from accounts
where account_id = any(:account_ids::text[]);

-- name: ListAccounts :many
-- Lists accounts, oldest first: all of them, or those that match.
-- :after  the last one of the page before; empty: from the oldest
-- :name  part of a name in small letters; empty: all accounts
-- :account_ids  those that match in another way
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at
from accounts
where account_id > :after
  and (:name = '' or strpos(lower(name), :name) > 0 or account_id = any(:account_ids::text[]))
order by account_id
limit :rows;

-- name: ListOpenAccounts :many
-- Lists the accounts that are not closed, and since when one is suspended.
-- :after  the last one of the page before; empty: from the first
select account_id, case when status = 'suspended' then status_changed_at end as "suspended_at?"
from accounts
where account_id > :after and status <> 'closed'
order by account_id
limit :rows;

-- name: LockAccount :optional
-- Locks an account, before its pools: no key is added meanwhile. No row: no such account.
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at
from accounts
where account_id = :account_id
for no key update;

-- name: RenameAccount :one
-- Changes the name of an account. The caller has locked it.
update accounts
set name = :name
where account_id = :account_id
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at;

-- name: SetAccountStatus :one
-- Suspends, resumes or closes an account. The caller has locked it.
-- :reason  in the operator's words; empty: not told
update accounts
set status = :status, status_reason = :reason, status_changed_at = now()
where account_id = :account_id
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at;

-- name: SetBillingDetails :one
-- Replaces whom the documents of an account name. The caller has locked it.
update accounts
set billing_name = :name, billing_address = :address, billing_tax_id = :tax_id
where account_id = :account_id
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at;

-- name: ReadDefaultLimits :optional
-- The limits that members of an account without one get, as JSON of BudgetLimits. No row: no such
-- account.
select default_member_limits from accounts where account_id = :account_id;

-- name: SetDefaultLimits :run
-- Replaces them.
-- :limits?  null: none
update accounts set default_member_limits = :limits::jsonb where account_id = :account_id;
