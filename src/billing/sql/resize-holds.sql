-- Changes the amounts of holds, and with them the held amounts of their pools and months. The
-- caller has locked the pools. A hold that no longer exists is ignored.
-- $1 account_ids and $2 request_ids, each request once  $3 amounts
-- $4 whether a hold may become larger
with resized as materialized (
  select h.request_id, h.account_id, h."family", h.key_id, h.month,
    d.amount, d.amount - h.amount as added
  from holds h
  join unnest($1::text[], $2::text[], $3::bigint[]) as d (account_id, request_id, amount)
    on h.account_id = d.account_id and h.request_id = d.request_id
  where (d.amount < h.amount or ($4::boolean and d.amount > h.amount))
), in_pools as (
  update pools
  set held = pools.held + d.added,
    in_debt = pools.in_debt and (pools.posted < pools.held + d.added or pools.posted < 0)
  from (
    select account_id, "family", sum(added)::bigint as added
    from resized
    group by account_id, "family"
  ) d
  where pools.account_id = d.account_id and pools."family" = d."family"
), in_months as (
  update key_months
  set held = key_months.held + d.added
  from (
    select account_id, key_id, month, sum(added)::bigint as added
    from resized
    group by account_id, key_id, month
  ) d
  where key_months.account_id = d.account_id and key_months.key_id = d.key_id
    and key_months.month = d.month
)
update holds
set amount = resized.amount
from resized
where holds.account_id = resized.account_id and holds.request_id = resized.request_id;
