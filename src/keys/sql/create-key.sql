-- keys/sql/create-key.sql
-- Adds a key with its first secret. Foreign key violation: no such account.
-- Announces it for the alerts; no process can have cached this secret.
-- $1 key_id  $2 account_id  $3 family  $4 name  $5 requests_per_minute  $6 allowed_models
-- $7 monthly_cap  $8 account_reader  $9 expires_at  $10 created_by  $11 digest  $12 secret_id
-- $13 shown  $14 managed_by  $15 change_id
with created as (
  insert into keys
    (key_id, account_id, "family", name, requests_per_minute, allowed_models, monthly_cap,
     account_reader, expires_at, created_by, managed_by)
  values ($1, $2, $3, $4, $5, $6::text[], $7, $8, $9, $10, $14)
  returning key_id
), announced as (
  insert into key_changes (change_id, key_id)
  select $15, key_id from created
)
insert into key_secrets (digest, secret_id, key_id, shown)
select $11, $12, key_id, $13 from created;
