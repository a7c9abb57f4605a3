-- Reads both pools of an account. No row: no such account.
-- $1 account_id
select "family", posted, held from pools where account_id = $1 order by "family";
