-- keys/sql/find-secrets.sql
-- The secrets with these digests, with their keys. No row for an unknown digest.
-- $1 digests
select s.digest, s.secret_id, s.shown, s.created_at as secret_created_at, s.expires_at,
       s.revoked_at as secret_revoked_at,
       -- By this server's clock, so that nodes with other clocks agree. Null: does not expire.
       (extract(epoch from s.expires_at - clock_timestamp()) * 1000)::float8 as expires_in_ms,
       k.key_id, k.account_id, k."family", k.name, k.status, k.requests_per_minute,
       k.allowed_models, k.monthly_cap, k.account_reader, k.created_by, k.created_at,
       k.revoked_at
  from key_secrets s
  join keys k on k.key_id = s.key_id
 where s.digest = any($1::bytea[]);
