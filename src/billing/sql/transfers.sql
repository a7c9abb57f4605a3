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

-- name: FindTransfer :optional
-- Finds the transfer that was made with an idempotency key.
select transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at
from transfers
where account_id = :account_id and idempotency_key = :idempotency_key;

-- name: ListTransfers :many
-- Lists the transfers of an account, newest first.
-- :before?  the last one of the page before; null: from the newest
select transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at
from transfers
where account_id = :account_id and (:before::text is null or transfer_id < :before)
order by transfer_id desc
limit :rows;

-- name: FindTransfers :many
-- Finds the transfers of a range, newest first.
-- :account_id?  null: of all accounts
-- :to?  exclusive; null: up to now
-- :after?  the last one of the page before
-- :first  an id below those of the range
-- :last  an id above those of the range
select transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at
from transfers
where (:account_id::text is null or account_id = :account_id)
  and created_at >= :from and (:to::timestamptz is null or created_at < :to)
  and transfer_id > :first and transfer_id < :last
  and (:after::text is null or transfer_id < :after)
order by transfer_id desc
limit :rows;
