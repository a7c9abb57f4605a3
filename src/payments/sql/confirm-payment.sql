-- Stores how many blocks a payment needs, and whether it has them.
-- $1 processor  $2 external_id  $3 blocks  $4 true: it has settled
update chain_payments
set needed = $3, state = case when $4::boolean then 'settled' else state end
where processor = $1 and external_id = $2;
