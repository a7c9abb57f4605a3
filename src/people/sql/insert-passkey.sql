-- people/sql/insert-passkey.sql
-- Adds a passkey to a person. No row: it exists.
-- $1 credential_id  $2 passkey_id  $3 person_id  $4 public_key  $5 counter  $6 name
insert into passkeys (credential_id, passkey_id, person_id, public_key, counter, name)
values ($1, $2, $3, $4, $5, $6)
on conflict (credential_id) do nothing
returning passkey_id, name, created_at, used_at;
