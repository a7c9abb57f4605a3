-- As for PostgreSQL, without the months, which `lock_account` reads where the account is: every
-- server has a copy of the keys.
-- $1 account_ids, not needed here  $2 key_ids
select k.key_id, k.allowed_models, k.monthly_cap,
  case when k.status = 'revoked' then 'revoked'
    when k.expires_at <= now() then 'expired'
    when k.paused then 'paused'
    else 'active' end as status,
  0::bigint as spent, 0::bigint as held
from keys k
where k.key_id = any($2::text[]) and $1::text[] is not null;
