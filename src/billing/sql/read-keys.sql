-- Reads the fields of keys that admission checks, with their current UTC month. A key without a row
-- for the month has neither spent nor held credits in it.
-- $1 key_ids
select k.key_id, k.allowed_models, k.monthly_cap,
  case when k.status = 'revoked' then 'revoked'
    when k.expires_at <= now() then 'expired'
    when k.paused then 'paused'
    else 'active' end as status,
  coalesce(m.spent, 0) as spent, coalesce(m.held, 0) as held
from keys k
left join key_months m
  on m.account_id = k.account_id and m.key_id = k.key_id
    and m.month = date_trunc('month', now() at time zone 'utc')::date
where k.key_id = any($1::text[]);
