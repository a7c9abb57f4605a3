-- Releases a hold whose request was charged: the rest of a request that was used twice. The caller
-- has locked the pool.
-- $1 account_id  $2 request_id
with released as (
  delete from holds h using charges c
  where h.account_id = $1 and h.request_id = $2
    and c.account_id = h.account_id and c.request_id = h.request_id
  returning h.account_id, h."family", h.key_id, h.month, h.amount
), in_pool as (
  update pools
  set held = pools.held - r.amount,
    in_debt = pools.in_debt and (pools.posted < pools.held - r.amount or pools.posted < 0)
  from released r
  where pools.account_id = r.account_id and pools."family" = r."family"
)
update key_months
set held = key_months.held - r.amount
from released r
where key_months.account_id = r.account_id and key_months.key_id = r.key_id
  and key_months.month = r.month;
