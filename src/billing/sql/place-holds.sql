-- Stores holds and adds them to their pools and months. The caller has locked the pools and found
-- that they and the months cover the holds. Unique violation: another transaction took one of the
-- requests in the meantime. Times of admission are whole milliseconds, as in JavaScript.
-- $1 account_ids  $2 request_ids  $3 families  $4 key_ids  $5 secret_ids  $6 models  $7 amounts
-- $8 price_versions  $9 nonces  $10 deadlines, in milliseconds from now
-- $11 node_ids, null for holds that belong to no process  $12 granted output tokens
-- $13 tags, null for none
with placed as (
  insert into holds (account_id, request_id, "family", key_id, secret_id, model, month, amount,
    price_version, node_id, nonce, admitted_at, deadline, granted_output, tags)
  select account_id, request_id, "family", key_id, secret_id, model,
    date_trunc('month', now() at time zone 'utc')::date, amount, price_version, node_id, nonce,
    date_trunc('milliseconds', now()), now() + deadline * interval '1 millisecond',
    granted_output, tags
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
    $7::bigint[], $8::text[], $9::text[], $10::integer[], $11::text[], $12::integer[],
    $13::jsonb[])
    as h (account_id, request_id, "family", key_id, secret_id, model,
      amount, price_version, nonce, deadline, node_id, granted_output, tags)
  returning account_id, "family", key_id, month, amount
), in_pools as (
  update pools
  set held = pools.held + d.amount
  from (
    select account_id, "family", sum(amount)::bigint as amount
    from placed
    group by account_id, "family"
  ) d
  where pools.account_id = d.account_id and pools."family" = d."family"
)
-- The first hold of a key in a month creates the row of the month.
insert into key_months (account_id, key_id, month, held)
select account_id, key_id, month, sum(amount)
from placed
group by account_id, key_id, month
order by account_id, key_id, month
on conflict (account_id, key_id, month) do update
set held = key_months.held + excluded.held;
