-- Adds counts of rejected requests. Sorted, so that processes that add at the same time wait for
-- each other in the same order.
-- $1 account_ids  $2 hours  $3 key_ids  $4 reasons  $5 counts, each account, hour, key and reason
-- once
insert into errors_hourly (account_id, hour, key_id, reason, requests)
select account_id, hour, key_id, reason, requests
from unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::bigint[])
  as e (account_id, hour, key_id, reason, requests)
order by account_id, hour, key_id, reason
on conflict (account_id, hour, key_id, reason) do update
set requests = errors_hourly.requests + excluded.requests;
