-- As for PostgreSQL, with the charges named with their accounts: their shards answer alone.
-- $1 account_ids  $2 request_ids  $3 months of the charges
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.tags, c.admitted_at, c.settled_at,
  each_category(c.# as used_#), p.price_version, each_category(p.#)
from charges c
join unnest($1::text[], $2::text[], $3::date[]) as d (account_id, request_id, month)
  on c.account_id = d.account_id and c.request_id = d.request_id and c.month = d.month
join price_versions p on p.price_version = c.price_version
where true of_accounts(c.account_id)
order by c.settled_at, c.request_id;
