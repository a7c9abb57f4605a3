-- name: RegisterPrice :run
-- Stores a price version, unless it is stored already.
-- :prompt_over?
-- :prompt_above?
-- :above_price?
insert into price_versions (price_version, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_search,
  prompt_over, prompt_above, above_price, note)
values (:price_version, :model,
  :input, :output, :thinking, :cache_write_5m, :cache_write_1h, :cache_read, :web_search,
  :prompt_over, :prompt_above, :above_price, :note)
on conflict do nothing;

-- name: ListPrices :many
-- Lists every price at which a request was ever admitted, by model, newest first.
select price_version, model, input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
  web_search, prompt_over, prompt_above, above_price, note, created_at
from price_versions
order by model, created_at desc;
