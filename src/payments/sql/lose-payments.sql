-- Gives payments up: those that were replaced, and those that have been gone for too long.
-- $1 processor  $2 chain  $3 external_ids that were replaced  $4 milliseconds
update chain_payments
set state = 'lost', height = null, hash = null
where processor = $1 and chain = $2 and state <> 'lost'
  and (external_id = any($3::text[])
    or missing_since < now() - $4::bigint * interval '1 millisecond')
returning external_id;
