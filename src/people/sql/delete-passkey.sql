-- people/sql/delete-passkey.sql
-- Removes a passkey of a person. No row: there is none.
-- $1 person_id  $2 passkey_id
delete from passkeys where person_id = $1 and passkey_id = $2 returning passkey_id;
