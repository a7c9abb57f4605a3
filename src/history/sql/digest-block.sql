-- The digest of the lines of the next charges of a month, in the order of their settlement, and the
-- last of these charges. One row; without charges, of nothing.
-- $1 month  $2, $3, $4 after this settled_at, request_id and account_id  $5 charges at most
-- $6 settled before this time
select count(*)::integer as charges,
  sha256(convert_to(
    string_agg(line, E'\n' order by settled_at, request_id, account_id) || E'\n', 'UTF8')) as sha256,
  max(settled_at)::text as settled_at,
  (array_agg(request_id order by settled_at, request_id, account_id))[count(*)::integer]
    as request_id,
  (array_agg(account_id order by settled_at, request_id, account_id))[count(*)::integer]
    as account_id
from (
  select c.settled_at, c.request_id, c.account_id, charge_line(c) as line
  from charges c
  where c.month = $1::date and c.amount >= 0
    and (c.settled_at, c.request_id, c.account_id) > ($2::timestamptz, $3, $4)
    and c.settled_at < $6::timestamptz
  order by c.settled_at, c.request_id, c.account_id
  limit $5
) block;
