-- Lists what persons granted for an order: micro-credits by deposit.
-- $1 order_id
select given.deposit_id, given.micro
from payment_decisions d
cross join lateral unnest(d.deposit_ids, d.micros) as given (deposit_id, micro)
where d.order_id = $1 and d.state = 'done'
union all
-- A deposit that goes back whole counts no more.
select external_id, 0::bigint
from payment_refunds
where order_id = $1 and external_id is not null and state not in ('refused', 'cancelled');
