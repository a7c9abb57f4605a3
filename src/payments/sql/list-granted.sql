-- Lists what was granted for an order, oldest first, without what was taken back. A micro-dollar is
-- 200 micro-credits.
-- $1 order_id
select micro, micro / 200 as usd_micro, created_at
from payment_grants
where order_id = $1 and micro > 0
order by n;
