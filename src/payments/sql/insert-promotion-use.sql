-- Stores the use of a code by an account. No row: the account has used it.
-- $1 code_id  $2 account_id  $3 the order that the code needed, or null
insert into promotion_uses (code_id, account_id, order_id, used_at)
values ($1, $2, $3, now())
on conflict (code_id, account_id) do nothing
returning code_id;
