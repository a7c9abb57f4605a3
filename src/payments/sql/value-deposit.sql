-- Stores what a deposit is worth. It never changes afterwards.
-- $1 processor  $2 external_id  $3 usd_micro  $4 valued_by
update payment_deposits
set usd_micro = $3, valued_by = $4
where processor = $1 and external_id = $2 and valued_by is null;
