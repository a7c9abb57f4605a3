-- Gives payments without an order this one.
-- $1 processor  $2 external_ids  $3 order_id
update chain_payments set order_id = $3
where processor = $1 and external_id = any($2::text[]) and order_id is null
returning external_id;
