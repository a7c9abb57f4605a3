-- Finds the transfer that waits for an approval under an idempotency key. The caller has locked a
-- pool of the account.
-- $1 account_id  $2 idempotency_key
select pending_transfer_id, account_id, "family", kind, amount, idempotency_key, reason,
  requested_by, requested_at, state, decided_by, transfer_id
from pending_transfers
where account_id = $1 and idempotency_key = $2 and state = 'pending';
