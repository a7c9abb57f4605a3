-- people/sql/list-identities.sql
-- The identities of a person, oldest first.
-- $1 person_id
select identity_id, issuer, created_at, used_at
  from identities where person_id = $1
 order by created_at, identity_id;
