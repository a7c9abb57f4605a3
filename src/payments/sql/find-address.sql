-- Finds the address of an account and pool.
-- $1 key_id  $2 account_id  $3 family
select address from deposit_addresses
where key_id = $1 and account_id = $2 and "family" = $3;
