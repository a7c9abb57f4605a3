-- Stores a price version that is not there yet.
-- $1 price_version  $2 model  $3 to $8 micro-credits per token by category
insert into price_versions (price_version, model, input, output, cache_write_5m, cache_write_1h, cache_read, thinking)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict do nothing;
