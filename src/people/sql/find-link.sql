-- people/sql/find-link.sql
-- A link that can be used.
-- $1 digest
select link_id, purpose, person_id, account_id, role, login, ends_at, email
  from links
 where digest = $1 and used_at is null and ends_at > now();
