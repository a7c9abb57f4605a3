-- As for PostgreSQL, with the months named with their accounts: a shard answers alone.
-- $1 account_ids  $2 key_ids
select k.key_id, k.allowed_models, k.monthly_cap,
  case when k.status = 'revoked' then 'revoked'
    when k.expires_at <= now() then 'expired'
    when k.paused then 'paused'
    else 'active' end as status,
  coalesce(m.spent, 0) as spent, coalesce(m.held, 0) as held
from keys k
left join (
  select account_id, key_id, spent, held
  from key_months
  where month = date_trunc('month', now() at time zone 'utc')::date of_accounts(account_id)
) m on m.account_id = k.account_id and m.key_id = k.key_id
where k.key_id = any($2::text[]);
