-- people/sql/find-identity.sql
-- The person to whom an identity belongs, and the roles that its groups gave the last time.
-- $1 issuer  $2 subject
select identity_id, person_id, operator, accounts
  from identities where issuer = $1 and subject = $2;
