-- Finds the first order of an account and pool of which at least so many credits are left: granted
-- for money, and not taken back by a refund that has begun.
-- $1 account_id  $2 family  $3 micro-credits
select o.order_id
from payment_orders o
where o.account_id = $1 and o."family" = $2
  and (select coalesce(sum(g.micro), 0) from payment_grants g where g.order_id = o.order_id)
    - (select coalesce(sum(r.micro), 0) from payment_refunds r
       where r.order_id = o.order_id and r.state not in ('refused', 'cancelled')) >= $3
order by o.order_id
limit 1;
