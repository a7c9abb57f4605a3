-- Counts the accounts, keys and models whose sums of a closed month differ from those of its days.
-- $1 month
select count(*)::integer as differences
from (
  select account_id, key_id, model, each_charged(sum(#) as #)
  from usage_daily
  where day >= $1::date and day < ($1::date + interval '1 month')::date
  group by account_id, key_id, model
) d
full join (
  select account_id, key_id, model, each_charged(sum(#) as #)
  from closed_months
  where month = $1::date
  group by account_id, key_id, model
) c using (account_id, key_id, model)
where (each_charged(d.#)) is distinct from (each_charged(c.#));
