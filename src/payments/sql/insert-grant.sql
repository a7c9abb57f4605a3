-- Stores the difference between what an order is to be granted and what it was. No row: there is
-- none. The caller has locked the order.
-- $1 order_id  $2 all that is to be granted, in micro-credits
insert into payment_grants (order_id, n, micro)
select $1, count(*) + 1, $2::bigint - coalesce(sum(micro), 0)
from payment_grants
where order_id = $1
having $2 <> coalesce(sum(micro), 0)
returning n, micro;
