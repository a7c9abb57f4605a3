-- Locks holds in the order of their ids. A request that was settled has none.
-- $1 request_ids
select request_id, account_id, family, key_id, secret_id, model, month, amount, price_version, admitted_at,
  input, output, cache_write_5m, cache_write_1h, cache_read, thinking
from holds
where request_id = any($1::text[])
order by request_id
for update;
