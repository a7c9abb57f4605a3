-- Finds the holds of those of these requests that run, with their prices.
-- $1 account_ids  $2 request_ids
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags, each_category(h.# as used_#), p.price_version,
  each_category(p.#)
from holds h
join unnest($1::text[], $2::text[]) as d (account_id, request_id) using (account_id, request_id)
join price_versions p using (price_version);
