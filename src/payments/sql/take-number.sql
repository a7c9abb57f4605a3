-- Takes the next number of a kind of document, for the seller of an order, in the current UTC year.
-- Its row stays locked until the end of the transaction, which either uses the number or gives it
-- back: so there is no gap. No row: there is no such order.
-- $1 order_id  $2 kind
insert into payment_numbers (seller, kind, year, last)
select seller_name, $2, extract(year from now() at time zone 'UTC')::integer, 1
from payment_orders
where order_id = $1
on conflict (seller, kind, year) do update set last = payment_numbers.last + 1
returning seller, year, last as n;
