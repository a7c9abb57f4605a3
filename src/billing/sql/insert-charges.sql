-- Stores the charges of requests whose holds were just deleted.
-- $1 months  $2 request_ids  $3 account_ids  $4 families  $5 key_ids  $6 secret_ids  $7 models  $8 to $13 tokens by category
-- $14 price_versions  $15 holds  $16 amounts  $17 overruns  $18 outcomes  $19 bases  $20 attempts  $21 admitted_at
insert into charges (month, request_id, account_id, family, key_id, secret_id, model,
  input, output, cache_write_5m, cache_write_1h, cache_read, thinking,
  price_version, hold, amount, overrun, outcome, basis, attempts, admitted_at, settled_at)
select month, request_id, account_id, family, key_id, secret_id, model,
  input, output, cache_write_5m, cache_write_1h, cache_read, thinking,
  price_version, hold, amount, overrun, outcome, basis, attempts, admitted_at, now()
from unnest($1::date[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
  $8::integer[], $9::integer[], $10::integer[], $11::integer[], $12::integer[], $13::integer[],
  $14::text[], $15::bigint[], $16::bigint[], $17::bigint[], $18::text[], $19::text[], $20::jsonb[], $21::timestamptz[])
  as c (month, request_id, account_id, family, key_id, secret_id, model,
    input, output, cache_write_5m, cache_write_1h, cache_read, thinking,
    price_version, hold, amount, overrun, outcome, basis, attempts, admitted_at);
