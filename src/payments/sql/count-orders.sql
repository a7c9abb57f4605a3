-- Counts the orders that an account has open, and those of the last hour with the first of them.
-- $1 account_id
select
  count(*) filter (
    where state in ('open', 'seen') and (state = 'seen' or quoted_until > now())
  )::integer as open,
  count(*) filter (where created_at > now() - interval '1 hour')::integer as made,
  min(created_at) filter (where created_at > now() - interval '1 hour') as first_at
from payment_orders
where account_id = $1 and kind = 'pack';
