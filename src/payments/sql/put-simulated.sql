-- Pretends that something arrives for an order, or that more became of it. No row: the deposit
-- belongs to another order.
-- $1 deposit_id  $2 order_id  $3 asset  $4 network  $5 decimals  $6 atoms  $7 confirmations
-- $8 lost  $9 first_seen_at
insert into simulated_payments as p
  (deposit_id, order_id, asset, network, decimals, atoms, confirmations, lost, first_seen_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict (deposit_id) do update
set confirmations = excluded.confirmations, lost = excluded.lost
where p.order_id = excluded.order_id
returning deposit_id;
