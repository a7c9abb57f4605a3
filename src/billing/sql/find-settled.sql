-- The charges of these requests with their prices, in the order of their settlement.
-- $1 account_ids  $2 request_ids  $3 months of the charges
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.tags, c.admitted_at, c.settled_at,
  each_category(c.# as used_#), p.price_version, each_category(p.#)
from unnest($1::text[], $2::text[], $3::date[]) as d (account_id, request_id, month)
-- The offset makes the planner look up each request, rather than read whole months.
cross join lateral (
  select *
  from charges
  where account_id = d.account_id and request_id = d.request_id and month = d.month
  offset 0
) c
join price_versions p using (price_version)
order by c.settled_at, c.request_id;
