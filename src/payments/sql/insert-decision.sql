-- Stores a decision of a person.
-- $1 decision_id  $2 order_id  $3 kind  $4 facts  $5 deposit_ids  $6 micros  $7 reason  $8 state
-- $9 decided_by
insert into payment_decisions
  (decision_id, order_id, kind, facts, deposit_ids, micros, reason, state, decided_by, done_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, case when $8 = 'done' then now() end);
