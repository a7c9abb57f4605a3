-- The lines of the next charges of all accounts that were settled some time before another, in the
-- order of their settlement: one row for each UTC day, with the last of its charges.
-- $1, $2, $3 after this settled_at, request_id and account_id  $4 a time, and
-- $5 milliseconds before it  $6 charges at most
select (settled_at at time zone 'utc')::date as day, count(*)::integer as charges,
  string_agg(line, E'\n' order by settled_at, request_id, account_id) || E'\n' as lines,
  max(settled_at)::text as settled_at,
  (array_agg(request_id order by settled_at, request_id, account_id))[count(*)::integer]
    as request_id,
  (array_agg(account_id order by settled_at, request_id, account_id))[count(*)::integer]
    as account_id
from (
  select c.settled_at, c.request_id, c.account_id, charge_line(c) as line
  from charges c
  where c.amount >= 0 and (c.settled_at, c.request_id, c.account_id) > ($1::timestamptz, $2, $3)
    and c.settled_at < $4::timestamptz - $5::integer * interval '1 millisecond'
  order by c.settled_at, c.request_id, c.account_id
  limit $6
) page
group by 1
order by 1;
