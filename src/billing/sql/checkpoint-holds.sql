-- Stores what running requests used so far; a figure never falls. Locks in the order of the ids, as
-- settling does.
-- $1 request_ids  $2 to $7 tokens by category
with ordered as (select request_id from holds where request_id = any($1::text[]) order by request_id for update)
update holds
set input = greatest(holds.input, d.input), output = greatest(holds.output, d.output),
  cache_write_5m = greatest(holds.cache_write_5m, d.cache_write_5m), cache_write_1h = greatest(holds.cache_write_1h, d.cache_write_1h),
  cache_read = greatest(holds.cache_read, d.cache_read), thinking = greatest(holds.thinking, d.thinking)
from ordered, unnest($1::text[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[])
  as d (request_id, input, output, cache_write_5m, cache_write_1h, cache_read, thinking)
where holds.request_id = ordered.request_id and holds.request_id = d.request_id
returning holds.request_id;
