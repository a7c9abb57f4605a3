-- Finds the keys that have spent a part of their cap of the current UTC month. A cap is reached
-- when nothing is left of it, or when a request of the last hours was rejected for it: what is left
-- may be too little for any request.
-- $1 account_ids  $2 percent of the cap
select k.account_id, k.key_id, k.name, k.monthly_cap, m.month, m.spent,
  m.spent >= k.monthly_cap or exists (
    select 1
    from errors_hourly e
    where e.account_id = m.account_id and e.key_id = m.key_id
      and e.reason = 'monthly_cap_reached'
      and e.hour >= date_trunc('hour', now(), 'UTC') - interval '1 hour'
      and e.hour >= date_trunc('month', now(), 'UTC')
  ) as is_reached
from key_months m
join keys k on m.account_id = k.account_id and m.key_id = k.key_id
where m.account_id = any($1::text[]) and k.status = 'active' and k.monthly_cap > 0
  and m.month = date_trunc('month', now() at time zone 'utc')::date
  and m.spent >= k.monthly_cap * ($2::numeric / 100);
