-- Finds the charges with a request id in all accounts, with their prices. Looks into every account:
-- no index begins with the request id, since every charge would pay for it.
-- $1 request_id
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.tags, c.admitted_at, c.settled_at,
  each_category(c.# as used_#), p.price_version, each_category(p.#)
from accounts a
-- The offset keeps the planner from scanning all charges.
cross join lateral (
  select * from charges where account_id = a.account_id and request_id = $1 offset 0
) c
join price_versions p using (price_version)
order by c.admitted_at, c.account_id;
