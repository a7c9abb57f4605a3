-- name: InsertTransfer :one
-- Stores a transfer. The caller has locked its pool.
-- :amount  signed
-- :posted_after  what the pool has posted with this transfer
insert into transfers
  (transfer_id, account_id, "family", kind, amount, idempotency_key, reason, actor, posted_after)
values (:transfer_id, :account_id, :family, :kind, :amount, :idempotency_key, :reason, :actor,
  :posted_after)
returning transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at;

-- name: InsertPendingTransfer :one
-- Stores a transfer that has to be approved.
-- :family transfers.family
-- :kind transfers.kind
-- =family transfers.family
-- =kind transfers.kind
insert into pending_transfers
  (pending_transfer_id, account_id, "family", kind, amount, idempotency_key, reason, requested_by)
values (:pending_transfer_id, :account_id, :family, :kind, :amount, :idempotency_key, :reason,
  :requested_by)
returning pending_transfer_id, account_id, "family", kind, amount, idempotency_key, reason,
  requested_by, requested_at, state, decided_by, transfer_id;

-- name: FindTransfer :optional
-- Finds the transfer that was made with an idempotency key.
select transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at
from transfers
where account_id = :account_id and idempotency_key = :idempotency_key;

-- name: FindPendingTransfer :optional
-- Finds a transfer that was to be approved.
-- =family transfers.family
-- =kind transfers.kind
select pending_transfer_id, account_id, "family", kind, amount, idempotency_key, reason,
  requested_by, requested_at, state, decided_by, transfer_id
from pending_transfers
where pending_transfer_id = :pending_transfer_id;

-- name: FindPendingKey :optional
-- Finds the transfer that waits for an approval under an idempotency key. The caller has locked a
-- pool of the account.
-- =family transfers.family
-- =kind transfers.kind
select pending_transfer_id, account_id, "family", kind, amount, idempotency_key, reason,
  requested_by, requested_at, state, decided_by, transfer_id
from pending_transfers
where account_id = :account_id and idempotency_key = :idempotency_key and state = 'pending';

-- name: CountPendingTransfers :many
-- Counts the transfers that wait for an approval, by account.
select account_id, count(*)::integer as "transfers!"
from pending_transfers
where state = 'pending'
group by account_id
order by account_id desc
limit :rows;

-- name: ListTransfers :many
-- Lists the transfers of an account, newest first.
-- :before?  the last one of the page before; null: from the newest
select transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at
from transfers
where account_id = :account_id and (:before::text is null or transfer_id < :before)
order by transfer_id desc
limit :rows;

-- name: ListPendingTransfers :many
-- Lists the transfers that wait for an approval, newest first.
-- :before?  the last one of the page before; null: from the newest
-- =family transfers.family
-- =kind transfers.kind
select pending_transfer_id, account_id, "family", kind, amount, idempotency_key, reason,
  requested_by, requested_at, state, decided_by, transfer_id
from pending_transfers
where state = 'pending' and (:before::text is null or pending_transfer_id < :before)
order by pending_transfer_id desc
limit :rows;

-- name: EndPendingTransfer :run
-- Ends the waiting of a transfer. Changes no row: it does not wait.
-- :transfer_id?  of an approved one
update pending_transfers
set state = :state, decided_by = :decided_by, decided_at = now(), transfer_id = :transfer_id::text
where pending_transfer_id = :pending_transfer_id and state = 'pending';
