-- Stores holds that the locked pools and months were found to cover. Unique violation: a request id was taken meanwhile.
-- Times of admission are whole milliseconds, as JavaScript keeps them.
-- $1 request_ids  $2 account_ids  $3 families  $4 key_ids  $5 secret_ids  $6 models  $7 amounts  $8 price_versions  $9 nonces
-- $10 deadlines, in milliseconds from now  $11 node_ids, null for those of no process
insert into holds (request_id, account_id, family, key_id, secret_id, model, month, amount, price_version, node_id, nonce, admitted_at, deadline)
select request_id, account_id, family, key_id, secret_id, model, date_trunc('month', now() at time zone 'utc')::date, amount,
  price_version, node_id, nonce, date_trunc('milliseconds', now()), now() + deadline * interval '1 millisecond'
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[], $10::integer[],
  $11::text[])
  as h (request_id, account_id, family, key_id, secret_id, model, amount, price_version, nonce, deadline, node_id);
