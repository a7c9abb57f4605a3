-- people/sql/count-mails.sql
-- The mails of a kind to an address in the last 24 hours.
-- $1 address  $2 kind
select count(*)::integer as made from mails
 where address = $1 and kind = $2 and made_at > now() - interval '24 hours';
