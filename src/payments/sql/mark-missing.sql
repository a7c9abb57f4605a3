-- Notes which payments in no block wait for one, and which are gone.
-- $1 processor  $2 chain  $3 external_ids that wait
update chain_payments
set missing_since = case when external_id = any($3::text[]) then null
  else coalesce(missing_since, now()) end
where processor = $1 and chain = $2 and height is null and state <> 'lost';
