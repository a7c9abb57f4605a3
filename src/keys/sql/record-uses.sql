-- keys/sql/record-uses.sql
-- Records a use of each of these secrets, at most once a minute, whichever node it is.
-- $1 secret_ids
update key_secrets set last_used_at = now()
 where secret_id = any($1::text[])
   and (last_used_at is null or last_used_at < now() - interval '1 minute');
