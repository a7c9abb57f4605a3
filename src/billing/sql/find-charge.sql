-- A finished request with its price.
-- $1 request_id
select c.request_id, c.account_id, c.family, c.key_id, c.model, c.hold, c.amount, c.overrun, c.outcome, c.basis, c.attempts,
  c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.thinking as used_thinking,
  p.price_version, p.input, p.output, p.cache_write_5m, p.cache_write_1h, p.cache_read, p.thinking
from charges c
join price_versions p using (price_version)
where c.request_id = $1;
