-- people/sql/insert-identity.sql
-- Binds an identity to a person. No row: it belongs to somebody.
-- $1 issuer  $2 subject  $3 identity_id  $4 person_id
insert into identities (issuer, subject, identity_id, person_id) values ($1, $2, $3, $4)
on conflict (issuer, subject) do nothing
returning identity_id;
