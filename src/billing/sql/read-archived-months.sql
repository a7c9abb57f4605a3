-- The months in which an account was charged and whose charges were removed after an export, oldest
-- first.
-- $1 account_id, or null for any  $2 key_id, or null for any
select a.month
from closed_months c
join month_archives a on a.month = c.month
where a.dropped_at is not null and ($1::text is null or c.account_id = $1)
  and ($2::text is null or c.key_id = $2)
group by a.month
order by a.month;
