-- name: RegisterPrice :run
-- Stores a price version, unless it is stored already.
insert into price_versions (price_version, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_search)
values (:price_version, :model,
  :input, :output, :thinking, :cache_write_5m, :cache_write_1h, :cache_read, :web_search)
on conflict do nothing;

-- name: ListPrices :many
-- Lists every price at which a request was ever admitted, by model, newest first.
select price_version, model, input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
  web_search, created_at
from price_versions
order by model, created_at desc;
