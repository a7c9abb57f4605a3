-- name: FindPayer :optional
-- Finds the pool that pays for a key. No row: no such key.
select account_id, "family" from keys where key_id = :key_id;

-- name: TryWrites :run
-- Writes what admissions and settlements write: a hold, a pool, a charge and an hour of usage.
-- Fails where they would: at a lock, on a full disk. The caller rolls back. The rows are of no
-- account.
with placed as (
  insert into holds (account_id, request_id, "family", key_id, model, month, amount,
    price_version, nonce, admitted_at, deadline, granted_output)
  values ('', :request_id, 'v1', '', '', date_trunc('month', now() at time zone 'utc')::date, 0,
    '', '', now(), now(), 0)
), in_pools as (
  update pools set held = held where account_id = ''
), charged as (
  insert into charges (account_id, request_id, month, "family", key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
    price_version, granted_output, hold, amount, overrun, output_over, thinking_over, outcome,
    basis, admitted_at, settled_at)
  values ('', :request_id, date_trunc('month', now() at time zone 'utc')::date, 'v1', '', '',
    0, 0, 0, 0, 0, 0, '', 0, 0, 0, 0, 0, 0, '', '', now(), now())
)
insert into usage_hourly (account_id, key_id, model, hour) values ('', '', :request_id, now());
