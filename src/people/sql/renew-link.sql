-- people/sql/renew-link.sql
-- Gives an open link a new token. No row: the link was used, or it has ended.
-- $1 link_id  $2 digest of the token
update links set digest = $2
 where link_id = $1 and used_at is null and ends_at > now()
returning link_id;
