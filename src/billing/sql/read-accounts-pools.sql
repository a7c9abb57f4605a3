-- Reads the pools of accounts.
-- $1 account_ids
select account_id, "family", posted, held
from pools
where account_id = any($1::text[])
order by account_id, "family";
