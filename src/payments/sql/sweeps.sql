-- timeout_ms=5000

-- name: InsertSweep :run
-- Marks addresses that the operator is about to empty.
insert into sweeps (sweep_id, processor, network, addresses, until, created_by)
values (:sweep_id, :processor, :network, :addresses, :until, :created_by);

-- name: EndSweep :run
-- Ends a sweep. Changes no row: it has ended.
update sweeps set ended_at = now() where sweep_id = :sweep_id and ended_at is null;

-- name: ListSweeps :many
-- Lists sweeps, the newest first, each with whether all its balances were read after its end.
-- :sweep_id?  null: all
-- :before?  null: from the newest
select sweep_id, processor, network, addresses, until, began_at, ended_at, created_by,
  least(until, ended_at) < now() and not exists (
    select from address_balances b
    where b.processor = s.processor and b.chain = s.network and b.address = any(s.addresses)
      and b.block_at <= least(s.until, s.ended_at)
  ) as "is_read!"
from sweeps s
where (:sweep_id::text is null or sweep_id = :sweep_id)
  and (:before::text is null or sweep_id < :before)
order by sweep_id desc
limit :rows;

-- name: FindSweep :optional
-- Finds the sweep that an address was in at some time between two moments. Blocks can say a time
-- of some seconds ago.
select sweep_id
from sweeps
where processor = :processor and network = :chain and :address = any(addresses)
  and began_at - interval '15 seconds' <= :to and least(until, ended_at) >= :from
order by sweep_id desc
limit 1;

-- name: PutSweepPayment :run
-- Notes what came to an address during a sweep.
insert into sweep_payments
  (processor, external_id, sweep_id, address, asset, decimals, atoms, height, hash, at)
values
  (:processor, :external_id, :sweep_id, :address, :asset, :decimals, :atoms, :height, :hash, :at)
on conflict (processor, external_id) do nothing;

-- name: ListSweepPayments :many
-- Lists what came to addresses during some sweeps, oldest first.
select sweep_id, external_id, address, asset, decimals, atoms, height, hash, at, granted_by
from sweep_payments
where sweep_id = any(:sweep_ids::text[])
order by at, external_id;

-- name: FindSweepPayment :optional
-- Finds what came during a sweep.
select p.sweep_id, p.external_id, s.processor, s.network, p.address, p.asset, p.decimals, p.atoms,
  p.height, p.hash, p.at, p.granted_by
from sweep_payments p
join sweeps s on s.sweep_id = p.sweep_id
where p.sweep_id = :sweep_id and p.external_id = :external_id;

-- name: LockSweepPayment :optional
-- Locks what came during a sweep until the end of the transaction. No row: somebody has granted it.
select external_id from sweep_payments
where sweep_id = :sweep_id and external_id = :external_id and granted_by is null
for update;

-- name: GrantSweepPayment :run
-- Notes who granted what came during a sweep. The caller has locked it.
update sweep_payments
set granted_by = :granted_by, granted_at = now()
where sweep_id = :sweep_id and external_id = :external_id and granted_by is null;

-- name: LoseSweepPayments :run
-- Forgets what came to addresses above a height, which the chain left, and nobody granted.
delete from sweep_payments p
using sweeps s
where s.sweep_id = p.sweep_id and s.processor = :processor and s.network = :chain
  and p.height > :above and p.granted_by is null;
