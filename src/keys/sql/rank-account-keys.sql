-- keys/sql/rank-account-keys.sql
-- Ids of an account's keys that spent most in the current UTC month, most first.
-- $1 account_id  $2 most rows
select k.key_id
  from keys k
  left join key_months m
    on m.account_id = k.account_id
   and m.key_id = k.key_id
   and m.month = date_trunc('month', now() at time zone 'UTC')::date
 where k.account_id = $1
 order by coalesce(m.spent, 0) desc, k.key_id
 limit $2;
