-- Lists the grants of an order without a transfer, oldest first.
-- $1 order_id
select g.n, g.micro, o.account_id, o."family"
from payment_grants g
join payment_orders o on o.order_id = g.order_id
where g.order_id = $1 and g.transfer_id is null
order by g.n;
