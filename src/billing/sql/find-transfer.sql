-- Finds the transfer that was made with an idempotency key.
-- $1 account_id  $2 idempotency_key
select transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at
from transfers
where account_id = $1 and idempotency_key = $2;
