-- people/sql/insert-link.sql
-- Adds a one-time link.
-- $1 digest  $2 link_id  $3 purpose  $4 person_id  $5 account_id  $6 role  $7 login  $8 made_by
-- $9 good for milliseconds  $10 email
insert into links
  (digest, link_id, purpose, person_id, account_id, role, login, made_by, ends_at, email)
values ($1, $2, $3, $4, $5, $6, $7, $8, now() + $9::float8 * interval '1 millisecond', $10)
returning link_id, role, login, made_by, made_at, ends_at, email;
