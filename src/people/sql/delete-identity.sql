-- people/sql/delete-identity.sql
-- Removes an identity of a person. No row: there is none.
-- $1 person_id  $2 identity_id
delete from identities where person_id = $1 and identity_id = $2 returning identity_id;
