-- Approves a decision. The caller has locked its order.
-- $1 decision_id  $2 approved_by
update payment_decisions
set state = 'done', approved_by = $2, done_at = now()
where decision_id = $1 and state = 'pending';
