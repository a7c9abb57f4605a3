-- Stores a transfer that has to be approved.
-- $1 pending_transfer_id  $2 account_id  $3 family  $4 kind  $5 amount  $6 idempotency_key
-- $7 reason  $8 requested_by
insert into pending_transfers
  (pending_transfer_id, account_id, "family", kind, amount, idempotency_key, reason, requested_by)
values ($1, $2, $3, $4, $5, $6, $7, $8)
returning pending_transfer_id, account_id, "family", kind, amount, idempotency_key, reason,
  requested_by, requested_at, state, decided_by, transfer_id;
