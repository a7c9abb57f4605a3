-- Lists the transfers that wait for an approval, newest first.
-- $1 cursor: last pending_transfer_id of the page before, or null  $2 rows at most
select pending_transfer_id, account_id, "family", kind, amount, idempotency_key, reason,
  requested_by, requested_at, state, decided_by, transfer_id
from pending_transfers
where state = 'pending' and ($1::text is null or pending_transfer_id < $1)
order by pending_transfer_id desc
limit $2;
