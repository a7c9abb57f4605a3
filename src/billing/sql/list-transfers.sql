-- Transfers of an account, newest first, before the given one.
-- $1 account_id  $2 transfer_id of the place, or null for the start  $3 most rows
select transfer_id, account_id, family, kind, amount, idempotency_key, reason, actor, created_at
from transfers
where account_id = $1 and ($2::text is null or transfer_id < $2)
order by transfer_id desc
limit $3;
