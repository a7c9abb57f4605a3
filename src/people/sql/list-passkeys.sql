-- people/sql/list-passkeys.sql
-- The passkeys of a person, oldest first.
-- $1 person_id
select credential_id, passkey_id, name, created_at, used_at
  from passkeys where person_id = $1
 order by created_at, passkey_id;
