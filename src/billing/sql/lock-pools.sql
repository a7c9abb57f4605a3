-- Locks pools in the order of their ids. The lock of a pool guards everything below it: the months
-- of its keys, its roll-ups and its holds.
-- $1 account_ids  $2 families
select account_id, "family", posted, held, in_debt, account_status
from pools
where (account_id, "family") in (select * from unnest($1::text[], $2::text[]))
order by account_id, "family"
for update;
