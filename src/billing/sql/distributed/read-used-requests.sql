-- As for PostgreSQL, with each table named with its accounts and prices: a shard answers alone.
-- $1 account_ids  $2 request_ids
select h.account_id, h.request_id, h.node_id, h.nonce, h.key_id, h.model, h.amount,
  h.granted_output, h.admitted_at, h.month, p.price_version, each_category(p.#)
from holds h
join unnest($1::text[], $2::text[]) as d (account_id, request_id)
  on h.account_id = d.account_id and h.request_id = d.request_id
join price_versions p on p.price_version = h.price_version
where true of_accounts(h.account_id)
union all
select c.account_id, c.request_id, '', '', c.key_id, c.model, 0, c.granted_output, c.admitted_at,
  c.month, p.price_version, each_category(p.#)
from charges c
join unnest($1::text[], $2::text[]) as d (account_id, request_id)
  on c.account_id = d.account_id and c.request_id = d.request_id
join price_versions p on p.price_version = c.price_version
where c.month between
  (date_trunc('month', now() at time zone 'utc') - interval '1 month')::date
  and date_trunc('month', now() at time zone 'utc')::date
  of_accounts(c.account_id);
