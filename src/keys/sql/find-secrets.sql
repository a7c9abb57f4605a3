-- keys/sql/find-secrets.sql
-- The secrets with these digests, with their keys. No row for an unknown digest.
-- $1 digests
select s.digest, s.secret_id, s.shown, s.created_at as secret_created_at,
       s.expires_at as secret_expires_at, s.revoked_at as secret_revoked_at,
       -- By this server's clock, so that nodes with other clocks agree. Of the key and the secret,
       -- whichever expires first. Null: neither does.
       (extract(epoch from least(s.expires_at, k.expires_at) - clock_timestamp()) * 1000)::float8
         as expires_in_ms,
       coalesce(s.last_used_at < now() - interval '1 minute', true) as use_is_due,
       case when k.status = 'revoked' then 'revoked'
            when k.expires_at <= now() then 'expired'
            when k.paused then 'paused'
            else 'active' end as status,
       k.key_id, k.account_id, k."family", k.name, k.requests_per_minute, k.allowed_models,
       k.monthly_cap, k.account_reader, k.created_by, k.managed_by, k.paused, k.expires_at,
       k.created_at, k.revoked_at, a.status as account_status
  from key_secrets s
  join keys k on k.key_id = s.key_id
  join accounts a on a.account_id = k.account_id
 where s.digest = any($1::bytea[]);
