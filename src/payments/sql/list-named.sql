-- Lists the further payments of an order that webhooks named.
-- $1 processor  $2 external_id of the order
select distinct deposit_id
from payment_hooks
where processor = $1 and external_id = $2 and deposit_id <> ''
order by 1;
