-- people/sql/find-passkey.sql
-- A passkey of a person who may sign in.
-- $1 credential_id
select k.credential_id, k.person_id, k.public_key, k.counter
  from passkeys k
  join people p on p.person_id = k.person_id
 where k.credential_id = $1 and p.disabled_at is null;
