-- keys/sql/read-keys.sql
-- Keys with their usage in the current UTC month and the time of their newest charge, oldest first.
-- $1 key_ids
select k.key_id, k.account_id, k."family", k.name, k.requests_per_minute, k.allowed_models,
       k.monthly_cap, k.account_reader, k.created_by, k.managed_by, k.paused, k.expires_at,
       k.created_at, k.revoked_at,
       case when k.status = 'revoked' then 'revoked'
            when k.expires_at <= now() then 'expired'
            when k.paused then 'paused'
            else 'active' end as status,
       coalesce(m.spent, 0)::int8 as month_spent, coalesce(m.held, 0)::int8 as month_held,
       (date_trunc('month', now() at time zone 'UTC') + interval '1 month') at time zone 'UTC'
         as month_resets_at,
       used.last_used_at
  from keys k
  left join key_months m
    on m.account_id = k.account_id
   and m.key_id = k.key_id
   and m.month = date_trunc('month', now() at time zone 'UTC')::date
  left join (
    select account_id, key_id, max(last_used_at) as last_used_at
      from key_months
     where key_id = any($1::text[])
     group by account_id, key_id
  ) used
    on used.account_id = k.account_id
   and used.key_id = k.key_id
 where k.key_id = any($1::text[])
 order by k.key_id;
