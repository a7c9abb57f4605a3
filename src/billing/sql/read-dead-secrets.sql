-- Returns those of these secrets that were revoked or have expired.
-- $1 secret_ids
select secret_id, revoked_at is not null as revoked
from key_secrets
where secret_id = any($1::text[]) and (revoked_at is not null or expires_at <= now());
