-- Finds the charges with a request id in all accounts, with their prices: each shard looks for it.
-- $1 request_id
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.tags, c.admitted_at, c.settled_at,
  each_category(c.# as used_#), p.price_version, each_category(p.#)
from charges c
join price_versions p using (price_version)
where c.request_id = $1
order by c.admitted_at, c.account_id;
