-- Lists the charges of an account with their prices, newest first.
-- $1 account_id  $2, $3 cursor: admitted_at and request_id of the last charge of the page before,
-- or null  $4 rows at most
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.admitted_at, c.settled_at,
  each_category(c.# as used_#), p.price_version, each_category(p.#)
from charges c
join price_versions p using (price_version)
where c.account_id = $1 and c.amount >= 0
  and ($2::timestamptz is null or (c.admitted_at, c.request_id) < ($2, $3))
order by c.admitted_at desc, c.request_id desc
limit $4;
