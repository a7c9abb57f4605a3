-- people/sql/use-identity.sql
-- Records the use of an identity, and the roles that its groups give. No row: it was removed.
-- $1 identity_id  $2 person_id  $3 operator  $4 accounts
update identities set used_at = now(), operator = $3, accounts = $4
 where identity_id = $1 and person_id = $2
returning identity_id;
