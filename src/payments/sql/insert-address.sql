-- Stores the address of an account and pool. No row: they have one.
-- $1 key_id  $2 index  $3 address  $4 account_id  $5 family
insert into deposit_addresses (key_id, index, address, account_id, "family")
values ($1, $2, $3, $4, $5)
on conflict (account_id, "family", key_id) do nothing
returning address;
