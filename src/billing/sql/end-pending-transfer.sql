-- Ends the waiting of a transfer. No row: it does not wait.
-- $1 pending_transfer_id  $2 state  $3 decided_by  $4 transfer_id, or null
update pending_transfers
set state = $2, decided_by = $3, decided_at = now(), transfer_id = $4::text
where pending_transfer_id = $1 and state = 'pending'
returning pending_transfer_id;
