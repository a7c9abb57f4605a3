-- people/sql/lock-admin-token.sql
-- Locks an admin token that is not revoked until the end of the transaction. No row: there is none.
-- $1 token_id
select token_id from admin_tokens where token_id = $1 and revoked_at is null for share;
