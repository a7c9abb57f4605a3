-- Removes the deliveries of more than 90 days ago.
delete from payment_hooks where received_at < now() - interval '90 days';
