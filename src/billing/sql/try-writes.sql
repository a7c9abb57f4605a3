-- Writes what admissions and settlements write: a hold, a pool, a charge and an hour of usage.
-- Fails where they would: at a lock, on a full disk. The caller rolls back. The rows are of no
-- account.
-- $1 request_id
with placed as (
  insert into holds (account_id, request_id, "family", key_id, model, month, amount,
    price_version, nonce, admitted_at, deadline, granted_output)
  values ('', $1, 'v1', '', '', date_trunc('month', now() at time zone 'utc')::date, 0, '', '',
    now(), now(), 0)
), in_pools as (
  update pools set held = held where account_id = ''
), charged as (
  insert into charges (account_id, request_id, month, "family", key_id, model, each_category(#),
    price_version, granted_output, hold, amount, overrun, output_over, thinking_over, outcome,
    basis, admitted_at, settled_at)
  values ('', $1, date_trunc('month', now() at time zone 'utc')::date, 'v1', '', '',
    each_category(0), '', 0, 0, 0, 0, 0, 0, '', '', now(), now())
)
insert into usage_hourly (account_id, key_id, model, hour) values ('', '', $1, now());
