-- Writes the sums of a UTC day of all accounts from its hours, over what is written already.
-- $1 day
insert into usage_daily (account_id, day, key_id, model, each_sum(#))
select account_id, $1::date, key_id, model, each_sum(sum(#)::bigint)
from usage_hourly
where hour >= $1::date::timestamp at time zone 'utc'
  and hour < ($1::date + 1)::timestamp at time zone 'utc' and key_id >= ''
group by account_id, key_id, model
on conflict (account_id, day, key_id, model) do update
set (each_sum(#)) = row (each_sum(excluded.#));
