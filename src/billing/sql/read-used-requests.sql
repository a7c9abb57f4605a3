-- Returns those of these requests that run or were charged lately, with the prices at which they
-- were admitted. Lately: in the current UTC month or in the one before. An id that was made a
-- moment ago cannot have been used before.
-- $1 account_ids  $2 request_ids
select u.account_id, u.request_id, u.node_id, u.nonce, u.key_id, u.model, u.amount,
  u.granted_output, u.admitted_at, u.month, p.price_version, each_category(p.#)
from (
  select account_id, request_id, node_id, nonce, key_id, model, amount, granted_output,
    admitted_at, month, price_version
  from holds
  join unnest($1::text[], $2::text[]) as d (account_id, request_id) using (account_id, request_id)
  union all
  select c.account_id, c.request_id, '', '', c.key_id, c.model, 0, c.granted_output, c.admitted_at,
    c.month, c.price_version
  from unnest($1::text[], $2::text[]) as d (account_id, request_id)
  -- The offset makes the planner look up each request, rather than read both months.
  cross join lateral (
    select *
    from charges
    where account_id = d.account_id and request_id = d.request_id
      and month between
        (date_trunc('month', now() at time zone 'utc') - interval '1 month')::date
        and date_trunc('month', now() at time zone 'utc')::date
    offset 0
  ) c
) u
join price_versions p using (price_version);
