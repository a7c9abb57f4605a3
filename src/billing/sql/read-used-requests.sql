-- Returns those of these request ids that run or were charged, with the prices at which they were
-- admitted.
-- $1 request_ids
select u.request_id, u.node_id, u.nonce, u.key_id, u.model, u.amount, u.granted_output,
  u.admitted_at, u.month, p.price_version, each_category(p.#)
from (
  select request_id, node_id, nonce, key_id, model, amount, granted_output, admitted_at, month,
    price_version
  from holds
  where request_id = any($1::text[])
  union all
  select request_id, '', '', key_id, model, 0, granted_output, admitted_at, month, price_version
  from charges
  where request_id = any($1::text[])
) u
join price_versions p using (price_version);
