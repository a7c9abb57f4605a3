-- Counts the accounts, keys and models whose sums of a UTC day differ from those of its hours.
-- $1 day
select count(*)::integer as differences
from (select * from usage_daily where day = $1::date) d
full join (
  select account_id, key_id, model, each_sum(sum(#) as #)
  from usage_hourly
  where hour >= $1::date::timestamp at time zone 'utc'
    and hour < ($1::date + 1)::timestamp at time zone 'utc' and key_id >= ''
  group by account_id, key_id, model
) h using (account_id, key_id, model)
where (each_sum(d.#)) is distinct from (each_sum(h.#));
