-- timeout_ms=5000

-- name: InsertDecision :run
-- Stores a decision of a person.
-- :facts  those that it deals with
-- :approved_by?  null: it needed nobody
-- :micros  micro-credits, each for the deposit of its position
insert into payment_decisions
  (decision_id, order_id, kind, facts, deposit_ids, micros, reason, decided_by, approved_by)
values (:decision_id, :order_id, :kind, :facts, :deposit_ids, :micros, :reason, :decided_by,
  :approved_by);

-- name: FindDecision :optional
-- Finds a decision.
select decision_id, order_id, kind, facts, deposit_ids, micros, reason, decided_by,
  approved_by, created_at
from payment_decisions
where decision_id = :decision_id;

-- name: ListAttention :many
-- Lists the orders that wait for a person, oldest first, with the number of decisions before.
select o.order_id, o.account_id,
  (select count(*)::integer from payment_decisions d where d.order_id = o.order_id)
    as "decisions!"
from payment_orders o
where o.attention is not null and o.external_id is not null and o.order_id > :after
order by o.order_id
limit :rows;

-- name: ListDecided :many
-- Lists what persons granted for an order: micro-credits by deposit.
select given.deposit_id as "deposit_id!", given.micro as "micro!"
from payment_decisions d
cross join lateral unnest(d.deposit_ids, d.micros) as given (deposit_id, micro)
where d.order_id = :order_id
union all
-- A deposit that goes back whole counts no more.
select external_id, 0::bigint
from payment_refunds
where order_id = :order_id and external_id is not null and state not in ('refused', 'cancelled');
