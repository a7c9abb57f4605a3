-- Lists the transfers of an account, newest first.
-- $1 account_id  $2 cursor: last transfer_id of the page before, or null  $3 rows at most
select transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at
from transfers
where account_id = $1 and ($2::text is null or transfer_id < $2)
order by transfer_id desc
limit $3;
