-- Of these requests, those that run, with their prices.
-- $1 request_ids
select h.request_id, h.account_id, h.family, h.key_id, h.secret_id, h.model, h.month, h.nonce, h.amount, h.admitted_at,
  h.input as used_input, h.output as used_output, h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read, h.thinking as used_thinking,
  p.price_version, p.input, p.output, p.cache_write_5m, p.cache_write_1h, p.cache_read, p.thinking
from holds h
join price_versions p using (price_version)
where h.request_id = any($1::text[]);
