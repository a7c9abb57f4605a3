-- Which charges of some accounts were settled since ten seconds before a time, newest first, and
-- the time of this read. One row without a charge if there is none.
-- The ten seconds: charges do not become visible in the order of `settled_at`, which is the time at
-- which their transaction began. A settlement runs for eight seconds at most, by the time limits of
-- its statements, so a charge that this read cannot see yet is in the range of the next one.
-- $1 account_ids  $2 time of the previous read; null: now  $3 charges at most
select statement_timestamp() as read_at, c.account_id, c.request_id, c.month
from (select 1) as always
left join charges c
  on c.account_id = any($1::text[]) and c.amount >= 0
    and c.settled_at > coalesce($2::timestamptz, statement_timestamp()) - interval '10 seconds'
    -- True for every charge. Without an end, a plan for any $2 would read whole months.
    and c.settled_at < statement_timestamp() + interval '1 minute'
order by c.settled_at desc, c.request_id desc
limit $3;
