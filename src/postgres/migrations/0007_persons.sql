-- Persons: how they confirm who they are, and what they make.

-- How the person of a session proved last, in a confirmation, who he is. Null: only as it began.
alter table sessions add confirmed_by text check (confirmed_by in ('passkey', 'password', 'oidc'));

-- The keys of somebody who is shut out. Nobody manages most keys that programs make.
create index keys_by_manager on keys (managed_by) where managed_by <> '' and status = 'active';
-- Those that count as live, and those that were made lately.
create index keys_live on keys (account_id) where status = 'active';
create index keys_by_creation on keys (account_id, created_at);
