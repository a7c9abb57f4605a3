-- Finds the holds with a request id in all accounts, with their prices.
-- $1 request_id
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags, each_category(h.# as used_#), p.price_version,
  each_category(p.#)
from holds h
join price_versions p using (price_version)
where h.request_id = $1
order by h.admitted_at, h.account_id;
