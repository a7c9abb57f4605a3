-- Lists the accounts that are not closed, and since when one is suspended.
-- $1 cursor: last account_id of the page before, or ''  $2 rows at most
select account_id, case when status = 'suspended' then status_changed_at end as suspended_at
from accounts
where account_id > $1 and status <> 'closed'
order by account_id
limit $2;
