-- Stores a transfer. The caller has locked its pool.
-- $1 transfer_id  $2 account_id  $3 family  $4 kind  $5 amount, signed  $6 idempotency_key
-- $7 reason  $8 actor  $9 posted credits of the pool, with this transfer
insert into transfers
  (transfer_id, account_id, "family", kind, amount, idempotency_key, reason, actor, posted_after)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
returning transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at;
