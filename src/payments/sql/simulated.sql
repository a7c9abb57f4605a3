-- timeout_ms=5000

-- name: PutSimulated :run
-- Pretends that something arrives for an order, or that more became of it. Changes no row: the
-- deposit belongs to another order.
insert into simulated_payments as p
  (deposit_id, order_id, asset, network, decimals, atoms, confirmations, lost, first_seen_at)
values (:deposit_id, :order_id, :asset, :network, :decimals, :atoms, :confirmations, :is_lost,
  :first_seen_at)
on conflict (deposit_id) do update
set confirmations = excluded.confirmations, lost = excluded.lost
where p.order_id = excluded.order_id;

-- name: PutSimulatedFault :run
-- Lets the simulated processor report a fault of an order.
insert into simulated_faults (order_id, fault) values (:order_id, :fault) on conflict do nothing;

-- name: ListSimulated :many
-- Lists what was pretended to arrive for an order.
select deposit_id, asset, network, decimals, atoms, confirmations, lost as is_lost, first_seen_at
from simulated_payments
where order_id = :order_id
order by first_seen_at, deposit_id;

-- name: ListSimulatedFaults :many
-- Lists what the simulated processor was made to report of an order besides deposits.
select fault from simulated_faults where order_id = :order_id order by fault;

-- name: EndSimulated :run
-- Ends the quote of a simulated order now, unless it has ended.
-- :with_watching  true: the watching too
update payment_orders
set quoted_until = least(quoted_until, now()),
  watched_until = case when :with_watching::boolean then least(watched_until, now())
    else watched_until end,
  next_look_at = least(next_look_at, now() + interval '1 second')
where order_id = :order_id;
