-- Returns a row if a month has charges after the last one that is in a sink.
-- $1 month  $2, $3, $4 settled_at, request_id and account_id of the last one
select 1 as unsent
from charges c
where c.month = $1::date and c.amount >= 0
  and (c.settled_at, c.request_id, c.account_id) > ($2::timestamptz, $3, $4)
order by c.settled_at, c.request_id
limit 1;
