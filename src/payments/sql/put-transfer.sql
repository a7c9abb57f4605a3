-- Stores the transfer of a grant.
-- $1 order_id  $2 n  $3 transfer_id
update payment_grants set transfer_id = $3 where order_id = $1 and n = $2 and transfer_id is null;
