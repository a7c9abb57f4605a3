-- Returns those of these requests that were charged before the months of read-used-requests. Only
-- for ids that a caller proposed.
-- $1 account_ids  $2 request_ids
select c.account_id, c.request_id, '' as node_id, '' as nonce, c.key_id, c.model,
  0::bigint as amount, c.granted_output, c.admitted_at, c.month, p.price_version, each_category(p.#)
from charges c
join unnest($1::text[], $2::text[]) as d (account_id, request_id) using (account_id, request_id)
join price_versions p using (price_version)
where c.month < (date_trunc('month', now() at time zone 'utc') - interval '1 month')::date
  of_accounts(c.account_id);
