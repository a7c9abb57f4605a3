-- Lists the orders that wait for a person, oldest first, with the number of decisions before.
-- $1 cursor: last order_id of the page before, or ''  $2 rows at most
select o.order_id, o.account_id,
  (select count(*)::integer from payment_decisions d where d.order_id = o.order_id) as decisions
from payment_orders o
where o.attention is not null and o.external_id is not null and o.order_id > $1
order by o.order_id
limit $2;
