-- Finds a transfer that was to be approved.
-- $1 pending_transfer_id
select pending_transfer_id, account_id, "family", kind, amount, idempotency_key, reason,
  requested_by, requested_at, state, decided_by, transfer_id
from pending_transfers
where pending_transfer_id = $1;
