-- people/sql/use-link.sql
-- Uses a link up. No row: it was used before, it expired, or there is none.
-- $1 digest
update links set used_at = now()
 where digest = $1 and used_at is null and ends_at > now()
returning link_id, purpose, person_id, account_id, role, login, ends_at, email;
