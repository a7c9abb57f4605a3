-- Lists the decisions of some orders that wait for their approval.
-- $1 order_ids
select decision_id, order_id, kind, facts, deposit_ids, micros, reason, state, decided_by,
  approved_by, created_at
from payment_decisions
where order_id = any($1::text[]) and state = 'pending';
