-- Takes payments out of their blocks, because the chain left these.
-- $1 processor  $2 chain  $3 from this height  $4 to this height  $5 not these external_ids
update chain_payments
set height = null, hash = null, missing_since = now()
where processor = $1 and chain = $2 and height between $3 and $4
  and external_id <> all($5::text[])
returning external_id;
