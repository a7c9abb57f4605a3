-- Locks pools in the order of their ids. The lock of a pool guards everything below it: the months
-- of its keys, its roll-ups and its holds.
-- $1 account_ids and $2 families, each pool once
select p.account_id, p."family", p.posted, p.held, p.in_debt, p.account_status
from unnest($1::text[], $2::text[]) as d (account_id, "family")
join pools p using (account_id, "family")
order by p.account_id, p."family"
for update of p;
