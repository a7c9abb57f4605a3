-- Lists accounts, oldest first.
-- $1 cursor: last account_id of the page before, or ''  $2 rows at most
select account_id, name, created_at
from accounts
where account_id > $1
order by account_id
limit $2;
