-- people/sql/insert-mail.sql
-- Hands a mail in.
-- $1 mail_id  $2 kind  $3 address  $4 link_id; null: without a link  $5 facts
-- $6 tried for milliseconds
insert into mails (mail_id, kind, address, link_id, facts, ends_at)
values ($1, $2, $3, $4, $5, now() + $6::float8 * interval '1 millisecond');
