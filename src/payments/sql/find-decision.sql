-- Finds a decision.
-- $1 decision_id
select decision_id, order_id, kind, facts, deposit_ids, micros, reason, state, decided_by,
  approved_by, created_at
from payment_decisions
where decision_id = $1;
