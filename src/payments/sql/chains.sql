-- timeout_ms=5000

-- name: EnsureChain :run
-- Begins to read a chain.
insert into chains (processor, chain) values (:processor, :chain)
on conflict (processor, chain) do nothing;

-- name: TakeIndex :one
-- Takes the next index of an account key.
insert into deposit_keys as k (key_id, next_index) values (:key_id, 1)
on conflict (key_id) do update set next_index = k.next_index + 1
returning next_index - 1 as "index!";

-- name: InsertAddress :run
-- Stores the address of an account and pool. Changes no row: they have one.
insert into deposit_addresses (key_id, index, address, account_id, "family")
values (:key_id, :index, :address, :account_id, :family)
on conflict (account_id, "family", key_id) do nothing;

-- name: PutChainPayment :run
-- Stores what a chain says of one payment, with its transactions. Changes no row: nothing became
-- of it.
-- :height?  null: it is in no block yet
-- :hash?  of that block
-- :block_at?  its time
-- :market_rate?  micro-dollars of one coin at its first sight; null: unknown
-- :spends  the outputs that it spends, where a chain has them
-- :hashes  of its largest transactions
-- :transactions  how many it has
with noted as (
  insert into payment_transactions (processor, chain, tx, external_id)
  select :processor, :chain, hash, :external_id
  from unnest(:hashes::text[]) as hash
  on conflict do nothing
)
insert into chain_payments as p (processor, external_id, chain, address, asset, decimals, atoms,
  state, height, hash, block_at, first_seen_at, market_rate, spends, needed, transactions)
values (:processor, :external_id, :chain, :address, :asset, :decimals, :atoms,
  'seen', :height, :hash, :block_at, :first_seen_at, :market_rate, :spends, :needed, :transactions)
on conflict (processor, external_id) do update
set height = coalesce(excluded.height, p.height), hash = coalesce(excluded.hash, p.hash),
  block_at = coalesce(excluded.block_at, p.block_at),
  first_seen_at = least(p.first_seen_at, excluded.first_seen_at), missing_since = null,
  -- One that was lost came back: the order asks a person.
  state = case when p.state = 'lost' then 'seen' else p.state end
where p.state = 'lost' or p.missing_since is not null
  or (excluded.height is not null and p.hash is distinct from excluded.hash);

-- name: EnsureBalances :run
-- Begins to watch the balances of addresses that are new. They are expected to be unused.
insert into address_balances (processor, chain, address, atoms, nonce, height, block_at)
select :processor, :chain, a.address, 0, 0, :height, a.created_at
from deposit_addresses a
where a.address like '0x%' and not exists (
  select from address_balances b
  where b.processor = :processor and b.chain = :chain and b.address = a.address
)
on conflict (processor, chain, address) do nothing;

-- name: FindChain :optional
-- Finds how far a chain was read, and when last up to its newest block.
select height, tip, read_at from chains where processor = :processor and chain = :chain;

-- name: ListUnreadChains :many
-- Lists the chains that were not read up to their newest block for two minutes.
select processor, chain, coalesce(read_at, added_at) as "since!", unread_block as block
from chains
where coalesce(read_at, added_at) < now() - interval '2 minutes';

-- name: FindAddress :optional
-- Finds the address of an account and pool.
select address from deposit_addresses
where key_id = :key_id and account_id = :account_id and "family" = :family;

-- name: CountAddresses :optional
-- Counts the addresses of an account key that were given. No row: none was.
select next_index as addresses from deposit_keys where key_id = :key_id;

-- name: ListGiven :many
-- Lists the addresses of an account key, in the order in which they were given.
-- :after  the index of the last one of the page before
select index, address, account_id, "family", created_at
from deposit_addresses
where key_id = :key_id and index > :after
order by index
limit :rows;

-- name: OwnAddresses :many
-- Lists which of some addresses are ours, with their accounts.
select address, account_id from deposit_addresses where address = any(:addresses::text[]);

-- name: ListAddresses :many
-- Lists the addresses of EVM chains, page by page.
select address from deposit_addresses
where address > :after and address like '0x%'
order by address
limit :rows;

-- name: ListBalances :many
-- Lists the balances below a height to compare next: those that an order of Ether awaits, then the
-- oldest.
select b.address, b.atoms, b.nonce, b.height, b.block_at
from address_balances b
where b.processor = :processor and b.chain = :chain and b.height < :below
order by exists (
  select from payment_orders o
  join deposit_addresses a on a.account_id = o.account_id and a."family" = o."family"
  where a.address = b.address and o.processor = :processor and o.network = :chain
    and o.asset = :native and o.state in ('open', 'seen', 'partly_paid', 'expired', 'cancelled')
    and o.quoted_until > now() - interval '2 hours'
) desc, b.height, b.address
limit :rows;

-- name: ListBlocks :many
-- Lists the blocks of a chain that are remembered, newest first.
select height, hash from chain_blocks
where processor = :processor and chain = :chain
order by height desc;

-- name: ListChainPayments :many
-- Lists what arrived for an order, as its chain says it.
select external_id, chain as network, asset, decimals, atoms, state, height, market_rate, needed,
  first_seen_at, block_at
from chain_payments
where processor = :processor and order_id = :order_id
order by first_seen_at, external_id;

-- name: ListUnmined :many
-- Lists the payments of a chain that are in no block and may still come into one.
select external_id, spends from chain_payments
where processor = :processor and chain = :chain and height is null and state <> 'lost';

-- name: ListSettling :many
-- Lists addresses of which a payment seems to have the blocks that it needs: those with more than
-- 100 payments in blocks last, then the lowest block first.
-- :height  the cursor
-- :by_blocks  true: it needs as many as were stored with it; false: one
select ready.address, a.account_id, ready.is_flooded as "is_flooded!"
from (
  select p.address, count(*) > 100 as is_flooded, min(p.height) as lowest
  from chain_payments p
  where p.processor = :processor and p.chain = :chain and p.state = 'seen' and p.height is not null
  group by p.address
  having min(p.height + case when :by_blocks::boolean then p.needed else 1 end)
    <= :height::bigint + 1
  order by is_flooded, lowest, p.address
  limit :rows
) ready
join deposit_addresses a on a.address = ready.address
order by ready.is_flooded, ready.lowest, ready.address;

-- name: SumDays :many
-- Sums what accounts were paid on a chain within a day, and what is unsettled, in micro-dollars.
-- Null: partly unknown.
select a.account_id as "account_id!",
  case when bool_and(coalesce(o.rate, p.market_rate) is not null)
    then sum(trunc(p.atoms * coalesce(o.rate, p.market_rate) / 10::numeric ^ p.decimals))::text
  end as "usd_micro?"
from deposit_addresses a
join chain_payments p on p.address = a.address
left join payment_orders o on o.order_id = p.order_id and o.kind = 'pack'
where a.account_id = any(:account_ids::text[]) and p.processor = :processor and p.chain = :chain
  and p.state <> 'lost' and (p.state = 'seen' or p.first_seen_at > now() - interval '1 day')
group by a.account_id;

-- name: ListWaiting :many
-- Lists the payments in blocks that have no order, with their accounts, oldest first: at most 20 of
-- each address.
select external_id, address, asset, decimals, atoms, market_rate, first_seen_at, account_id,
  "family"
from (
  select p.external_id, p.address, p.asset, p.decimals, p.atoms, p.market_rate, p.first_seen_at,
    a.account_id, a."family",
    row_number() over (partition by p.address order by p.first_seen_at, p.external_id) as place
  from chain_payments p
  join deposit_addresses a on a.address = p.address
  where p.processor = :processor and p.chain = :chain and p.order_id is null and p.state <> 'lost'
    and p.height is not null
) waiting
where place <= 20
order by place, first_seen_at, external_id
limit 500;

-- name: LeaseChain :optional
-- Takes the right to read a chain. No row: it is not due, or somebody else reads it.
update chains
set lease_until = now() + :lease_ms::integer * interval '1 millisecond'
where processor = :processor and chain = :chain and next_read_at <= now()
  and (lease_until is null or lease_until < now())
returning height, hash, chunk_blocks, lease_until::text as "lease!";

-- name: LockChain :optional
-- Locks a chain that this node reads. No row: the lease has ended.
select height, hash from chains
where processor = :processor and chain = :chain and lease_until::text = :lease
for update;

-- name: MoveChain :run
-- Moves the cursor of a chain to the last of some blocks. They are remembered, and those of long
-- ago forgotten. The caller has locked the chain.
-- :kept  how many are remembered
with blocks as (
  select height, hash from unnest(:heights::bigint[], :hashes::text[]) as block (height, hash)
), forgotten as (
  delete from chain_blocks
  where processor = :processor and chain = :chain and height < (
    select b.height from chain_blocks b
    where b.processor = :processor and b.chain = :chain
    order by b.height desc
    offset :kept::integer limit 1
  )
), remembered as (
  insert into chain_blocks (processor, chain, height, hash)
  select :processor, :chain, height, hash from blocks
  on conflict (processor, chain, height) do update set hash = excluded.hash
)
update chains c
set height = last.height, hash = last.hash
from (select height, hash from blocks order by height desc limit 1) last
where c.processor = :processor and c.chain = :chain;

-- name: EndChunk :run
-- Notes that a chunk of blocks was read: the next one may have twice as many. The caller has locked
-- the chain.
update chains
set chunk_blocks = least(:most::integer, chunk_blocks * 2), failures = 0, unread_block = null
where processor = :processor and chain = :chain;

-- name: EndReading :run
-- Ends a reading of a chain.
-- :tip  the newest block
-- :is_whole  true: all blocks up to it were read
update chains
set tip = :tip, read_at = case when :is_whole::boolean then now() else read_at end,
  lease_until = null, next_read_at = now() + :next_ms::integer * interval '1 millisecond'
where processor = :processor and chain = :chain and lease_until::text = :lease;

-- name: FailReading :optional
-- Ends a reading that failed. After three failures the next chunk has half as many blocks; one that
-- cannot be halved is a block that cannot be read. Returns that block, once in three failures.
update chains
set failures = (failures + 1) % 3,
  chunk_blocks = case when failures = 2 then greatest(1, chunk_blocks / 2) else chunk_blocks end,
  unread_block = case when failures = 2 and chunk_blocks = 1 then height + 1 else unread_block end,
  lease_until = null, next_read_at = now() + :next_ms::integer * interval '1 millisecond'
where processor = :processor and chain = :chain and lease_until::text = :lease
returning case when failures = 0 then unread_block end as "unread_block?";

-- name: AssignPayments :run
-- Gives each payment that has no order the one of its coin and chain whose quote covered its first
-- sight: the newest. One that is younger than the payment by at most 2 minutes may take it, too.
-- Asks for a look at those orders.
with assigned as (
  update chain_payments p
  set order_id = o.order_id
  from chain_payments w
  cross join lateral (
    select o.order_id from payment_orders o
    join deposit_addresses a on a.account_id = o.account_id and a."family" = o."family"
    where a.address = w.address and o.processor = w.processor and o.network = w.chain
      and o.asset = w.asset and o.kind = 'pack' and o.external_id is not null
      and w.first_seen_at between o.created_at - interval '2 minutes' and o.quoted_until
    order by o.created_at desc
    limit 1
  ) o
  where w.processor = :processor and w.chain = :chain and w.order_id is null
    and w.state <> 'lost' and p.processor = w.processor and p.external_id = w.external_id
  returning p.order_id
)
update payment_orders set hook_at = now(), next_look_at = now()
where order_id in (select order_id from assigned);

-- name: PutPaymentOrder :run
-- Gives payments without an order this one.
update chain_payments set order_id = :order_id
where processor = :processor and external_id = any(:external_ids::text[]) and order_id is null;

-- name: RaiseNeeded :many
-- Stores that some unsettled payments to addresses need more blocks by now. Returns those that
-- changed.
with raised as (
  select p.external_id, c.needed
  from unnest(:addresses::text[], :needed::integer[]) as c (address, needed)
  join chain_payments p on p.address = c.address
  where p.processor = :processor and p.chain = :chain
    and p.state = 'seen' and p.height is not null and p.needed < c.needed
  limit :rows
)
update chain_payments p
set needed = r.needed
from raised r
where p.processor = :processor and p.external_id = r.external_id
returning p.external_id;

-- name: SettlePayments :many
-- Settles a page of payments that have the blocks they need: of each address at most 20, and those
-- of flooded addresses last, so that nobody's payments wait for those of somebody else.
-- :height  the cursor
-- :needed  blocks of each address
with page as (
  select p.external_id
  from unnest(:addresses::text[], :needed::integer[], :flooded::boolean[])
    as c (address, needed, flooded)
  cross join lateral (
    select external_id, height
    from chain_payments
    where processor = :processor and chain = :chain and address = c.address and state = 'seen'
      and height is not null and height <= :height::bigint + 1 - c.needed
    order by height
    limit 20
  ) p
  order by c.flooded, p.height, p.external_id
  limit :rows
)
update chain_payments p
set state = 'settled'
from page
where p.processor = :processor and p.external_id = page.external_id
returning p.external_id;

-- name: MarkFlooded :run
-- Lets a person look at the newest order of each of some addresses, once.
update payment_orders o
set faults = array(select distinct unnest(o.faults || 'flooded'::text) order by 1),
  hook_at = now(), next_look_at = now()
where o.order_id in (
  select max(p.order_id)
  from chain_payments p
  where p.address = any(:addresses::text[]) and p.processor = :processor and p.chain = :chain
    and p.state = 'seen' and p.height is not null
  group by p.address
) and not exists (
  select from payment_orders f
  where f.account_id = o.account_id and 'flooded' = any(f.faults)
);

-- name: MarkMissing :run
-- Notes which payments in no block wait for one, and which are gone.
-- :waiting  external ids
update chain_payments
set missing_since = case when external_id = any(:waiting::text[]) then null
  else coalesce(missing_since, now()) end
where processor = :processor and chain = :chain and height is null and state <> 'lost';

-- name: OrphanPayments :many
-- Takes the payments above a height out of their blocks, because the chain left these. Those that
-- spend outputs may come into another block; the others are lost with their block.
update chain_payments
set state = case when spends = '{}' then 'lost' else 'seen' end, height = null, hash = null,
  missing_since = case when spends = '{}' then null else now() end
where processor = :processor and chain = :chain and height > :above and state <> 'lost'
returning external_id;

-- name: ListInBlocks :many
-- Lists the payments of tokens in some blocks.
select external_id, atoms from chain_payments
where processor = :processor and chain = :chain and height between :from and :to
  and state <> 'lost' and asset <> :native;

-- name: LoseWithBlocks :run
-- Gives up payments whose blocks the chain left.
update chain_payments
set state = 'lost', height = null, hash = null
where processor = :processor and external_id = any(:external_ids::text[]) and state <> 'lost';

-- name: FindFirstSights :many
-- Finds when payments whose blocks the chain left were first seen, by transaction and address.
select t.tx, p.address, min(p.first_seen_at) as "first_seen_at!"
from payment_transactions t
join chain_payments p on p.processor = t.processor and p.external_id = t.external_id
where t.processor = :processor and t.chain = :chain and t.tx = any(:hashes::text[])
  and p.state = 'lost'
group by t.tx, p.address;

-- name: SumDust :many
-- Sums what waits in small pieces below a height, by address and asset.
select address, asset, sum(atoms)::text as "atoms!"
from address_dust
where processor = :processor and chain = :chain and address = any(:addresses::text[])
  and height < :below and taken_height is null
group by address, asset;

-- name: PutDust :run
-- Adds small pieces to those that wait. The pieces of blocks below the oldest one that is
-- remembered become one, since the chain does not leave them any more.
with pieces as (
  select * from unnest(:addresses::text[], :assets::text[], :heights::bigint[],
    :decimals::integer[], :atoms::numeric[], :sinces::timestamptz[])
    as piece (address, asset, height, decimals, atoms, since)
), oldest as (
  select min(height) as height from chain_blocks where processor = :processor and chain = :chain
), old as (
  delete from address_dust d
  using oldest
  where d.processor = :processor and d.chain = :chain and d.height < oldest.height
    and (d.taken_height is null or d.taken_height < oldest.height)
    and (d.address, d.asset) in (select distinct address, asset from pieces)
  returning d.address, d.asset, d.height, d.decimals, d.atoms, d.since, d.taken_height
)
insert into address_dust as d
  (processor, chain, address, asset, height, decimals, atoms, since)
select :processor, :chain, address, asset, height, decimals, atoms, since from pieces
union all
select :processor, :chain, address, asset, max(height), max(decimals), sum(atoms), min(since)
from old where taken_height is null
group by address, asset;

-- name: TakeDust :run
-- Notes that the pieces up to a height became part of a payment of that height.
update address_dust
set taken_height = :height
where processor = :processor and chain = :chain and address = :address and asset = :asset
  and height <= :height and taken_height is null;

-- name: ReturnDust :run
-- Forgets the pieces above a height, which the chain left; those of payments above it wait again.
with gone as (
  delete from address_dust where processor = :processor and chain = :chain and height > :above
)
update address_dust
set taken_height = null
where processor = :processor and chain = :chain and height <= :above and taken_height > :above;

-- name: LosePayments :many
-- Gives payments up: those that were replaced, and those that have been gone for too long.
-- :replaced  external ids
update chain_payments
set state = 'lost', height = null, hash = null
where processor = :processor and chain = :chain and state <> 'lost' and height is null
  and (external_id = any(:replaced::text[])
    or missing_since < now() - :missing_ms::bigint * interval '1 millisecond')
returning external_id;

-- name: LoseNative :many
-- Gives up the payments of Ether above a height, which the chain left: their ids never return.
with lost as (
  update chain_payments
  set state = 'lost', height = null, hash = null
  where processor = :processor and chain = :chain and asset = :native and height > :above
  returning external_id, address, atoms
), recorded as (
  select p.address, p.atoms
  from sweep_payments p
  join sweeps s on s.sweep_id = p.sweep_id
  where s.processor = :processor and s.network = :chain and p.height > :above
    and p.granted_by is null
), moved as (
  update address_balances b
  set height = :above,
    atoms = greatest(0, b.atoms
      - (select coalesce(sum(l.atoms), 0) from lost l where l.address = b.address)
      - (select coalesce(sum(r.atoms), 0) from recorded r where r.address = b.address))
  where b.processor = :processor and b.chain = :chain and b.height > :above
)
select external_id from lost;

-- name: MoveBalance :run
-- Stores a balance. Changes no row: another node has done so.
-- :from  the height of the one before
update address_balances
set atoms = :atoms, nonce = :nonce, height = :height, block_at = :block_at
where processor = :processor and chain = :chain and address = :address and height = :from;

-- name: KeepBalances :run
-- Stores that balances were the same at a later block.
update address_balances
set height = :height, block_at = :block_at
where processor = :processor and chain = :chain and address = any(:addresses::text[])
  and height < :height;

-- name: DropBlocks :run
-- Forgets the blocks above a height: the chain left them.
delete from chain_blocks where processor = :processor and chain = :chain and height > :above;

-- name: ListOfTransaction :many
-- Lists the payments that a transaction is a part of.
-- :hashes  its hash, in the forms in which chains write it
select c.external_id, c.address, c.asset, c.state, c.order_id
from payment_transactions t
join chain_payments c on c.processor = t.processor and c.external_id = t.external_id
where t.tx = any(:hashes::text[]) and t.processor = :processor
order by c.external_id
limit 100;
