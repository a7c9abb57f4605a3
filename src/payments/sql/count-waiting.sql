-- Counts the orders that wait for a person, by account.
-- $1 rows at most
select account_id, count(*)::integer as orders
from payment_orders
where attention is not null and external_id is not null
group by account_id
order by account_id desc
limit $1;
