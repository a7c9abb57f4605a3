-- keys/sql/read-live-secrets.sql Secrets of a key whose running requests may go on. An expired one
-- counts: what was begun in time may end.
-- $1 key_id
select s.secret_id
  from key_secrets s
  join keys k on k.key_id = s.key_id
 where s.key_id = $1 and s.revoked_at is null and k.status = 'active';
