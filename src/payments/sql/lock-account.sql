-- Locks an account until the end of the transaction, so that its orders are counted one by one.
-- $1 account_id
insert into payment_accounts (account_id) values ($1)
on conflict (account_id) do update set account_id = excluded.account_id;
