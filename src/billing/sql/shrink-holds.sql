-- Makes holds of locked pools smaller, and gives back the difference. Nothing happens to a hold that is small enough or gone.
-- $1 request_ids, each once  $2 amounts
with shrinking as materialized (
  select h.request_id, h.account_id, h.family, h.key_id, h.month, d.amount, h.amount - d.amount as freed
  from holds h
  join unnest($1::text[], $2::bigint[]) as d (request_id, amount) on h.request_id = d.request_id
  where h.amount > d.amount
), freed_pools as (
  update pools
  set held = pools.held - d.freed,
    in_debt = pools.in_debt and (pools.posted < pools.held - d.freed or pools.posted < 0)
  from (select account_id, family, sum(freed)::bigint as freed from shrinking group by account_id, family) d
  where pools.account_id = d.account_id and pools.family = d.family
), freed_months as (
  update key_months
  set held = key_months.held - d.freed
  from (select key_id, month, sum(freed)::bigint as freed from shrinking group by key_id, month) d
  where key_months.key_id = d.key_id and key_months.month = d.month
)
update holds
set amount = shrinking.amount
from shrinking
where holds.request_id = shrinking.request_id;
