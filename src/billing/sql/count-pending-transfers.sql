-- Counts the transfers that wait for an approval, by account.
-- $1 rows at most
select account_id, count(*)::integer as transfers
from pending_transfers
where state = 'pending'
group by account_id
order by account_id desc
limit $1;
