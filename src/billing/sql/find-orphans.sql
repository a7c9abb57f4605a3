-- Holds that nobody will settle: past their deadline, of the given dead nodes, or of nodes that are
-- gone. In the order of their ids, so that those which cannot be settled do not keep the next ones
-- from being found.
-- $1 node_ids that are dead  $2 request_id of the place, empty for the start  $3 most rows
select h.request_id, h.account_id, h.family, h.key_id, h.secret_id, h.model, h.month, h.nonce, h.amount, h.admitted_at,
  h.input as used_input, h.output as used_output, h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read, h.thinking as used_thinking,
  p.price_version, p.input, p.output, p.cache_write_5m, p.cache_write_1h, p.cache_read, p.thinking
from (
  select * from holds where deadline < now()
  union
  select * from holds where node_id = any($1::text[])
  union
  select * from holds where node_id is not null and node_id not in (select node_id from nodes)
) h
join price_versions p using (price_version)
where h.request_id > $2
order by h.request_id
limit $3;
