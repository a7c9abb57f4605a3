-- keys/sql/read-live-secrets.sql
-- Secrets of a key that are not revoked, with the status of its account. Expired ones are included:
-- a request that started before the expiry may finish.
-- $1 key_id
select s.secret_id, a.status as account_status
  from key_secrets s
  join keys k on k.key_id = s.key_id
  join accounts a on a.account_id = k.account_id
 where s.key_id = $1 and s.revoked_at is null and k.status = 'active';
