-- Lists the payments of a chain that are in no block and may still come into one.
-- $1 processor  $2 chain
select external_id, spends from chain_payments
where processor = $1 and chain = $2 and height is null and state <> 'lost';
