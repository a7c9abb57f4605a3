-- name: AddCursor :run
-- Adds a sink, which has no charge yet, unless it is known.
insert into sink_cursors (sink)
values (:sink)
on conflict (sink) do nothing;

-- name: ReadCursor :optional
-- How far the charges are in a sink. No row: it is not known.
select settled_at::text as "settled_at!", request_id, account_id, file, bytes
from sink_cursors
where sink = :sink;

-- name: ReadLag :optional
-- The seconds since the first charge after another was settled. No row: there is none.
select extract(epoch from now() - c.settled_at)::float8 as "seconds!"
from charges c
where c.amount >= 0
  and (c.settled_at, c.request_id, c.account_id)
    > (:settled_at::timestamptz, :request_id, :account_id)
order by c.settled_at, c.request_id
limit 1;

-- name: ReadSettledLines :many
-- The lines of the next charges of all accounts that were settled some time before another, in the
-- order of their settlement: one row for each UTC day, with the last of its charges.
-- :settled_at  after this one, as the request and the account
-- :margin_ms  so long before `until`
select (settled_at at time zone 'utc')::date as "day!", count(*)::integer as "charges!",
  string_agg(line, E'\n' order by settled_at, request_id, account_id) || E'\n' as "lines!",
  max(settled_at)::text as "settled_at!",
  (array_agg(request_id order by settled_at, request_id, account_id))[count(*)::integer]
    as "request_id!",
  (array_agg(account_id order by settled_at, request_id, account_id))[count(*)::integer]
    as "account_id!"
from (
  select c.settled_at, c.request_id, c.account_id, c.line
  from charge_lines_1 c
  where (c.settled_at, c.request_id, c.account_id)
      > (:settled_at::timestamptz, :request_id, :account_id)
    and c.settled_at < :until::timestamptz - :margin_ms::integer * interval '1 millisecond'
  order by c.settled_at, c.request_id, c.account_id
  limit :rows
) page
group by 1
order by 1;

-- name: MoveCursor :run
-- Records that charges are in a sink, up to the one that is last. Changes no row: another process
-- has moved the cursor meanwhile.
-- :bytes  of the file
update sink_cursors
set settled_at = :last_settled_at::timestamptz, request_id = :last_request_id,
  account_id = :last_account_id, file = :file, bytes = :bytes, moved_at = now()
where sink = :sink
  and (settled_at, request_id, account_id) = (:settled_at::timestamptz, :request_id, :account_id);
