-- Lists the refunds of some orders.
-- $1 order_ids
select order_id, n, usd_micro, external_id, micro, bonus_micro, state, "transaction", reason,
  made_by, created_at, ended_at
from payment_refunds
where order_id = any($1::text[])
order by order_id, n;
