-- Reads the charges of an account for an export, with the names of their keys, oldest first.
-- $1 account_id  $2, $3 after this admitted_at and request_id  $4 before this admitted_at
-- $5 rows at most
select c.request_id, c.key_id, k.name as key_name, c.model, c."family", upper(c.outcome) as outcome,
  upper(c.basis) as basis, c.granted_output, c.hold, c.amount, c.overrun, c.price_version, c.tags,
  to_char(c.admitted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as admitted_at,
  to_char(c.settled_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as settled_at,
  each_category(c.#)
from (
  select *
  from charges
  where account_id = $1 and amount >= 0
    and (admitted_at, request_id) > ($2::timestamptz, $3) and admitted_at < $4::timestamptz
    -- The month of a charge is that of its admission. This leaves out the other partitions.
    and month between date_trunc('month', $2 at time zone 'utc')::date
      and date_trunc('month', $4 at time zone 'utc')::date
  order by admitted_at, request_id
  limit $5
) c
left join keys k on k.key_id = c.key_id
order by c.admitted_at, c.request_id;
