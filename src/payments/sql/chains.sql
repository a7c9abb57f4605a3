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

-- name: PutBlock :run
-- Remembers a block that was read, and forgets those of long ago.
-- :kept  how many are remembered
with forgotten as (
  delete from chain_blocks
  where processor = :processor and chain = :chain and height < (
    select b.height from chain_blocks b
    where b.processor = :processor and b.chain = :chain
    order by b.height desc
    offset :kept::integer limit 1
  )
)
insert into chain_blocks (processor, chain, height, hash)
values (:processor, :chain, :height, :hash)
on conflict (processor, chain, height) do update set hash = excluded.hash;

-- name: PutChainPayment :run
-- Stores what a chain says of one payment. Changes no row: nothing became of it.
-- :height?  null: it is in no block yet
-- :hash?  of that block
-- :market_rate?  micro-dollars of one coin at its first sight; null: unknown
-- :spends  the outputs that it spends, where a chain has them
insert into chain_payments as p (processor, external_id, chain, address, asset, decimals, atoms,
  state, height, hash, first_seen_at, market_rate, spends)
values (:processor, :external_id, :chain, :address, :asset, :decimals, :atoms,
  'seen', :height, :hash, :first_seen_at, :market_rate, :spends)
on conflict (processor, external_id) do update
set height = coalesce(excluded.height, p.height), hash = coalesce(excluded.hash, p.hash),
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
-- Finds how far a chain was read.
select tip, now() - read_at < interval '2 minutes' as "is_fresh?"
from chains
where processor = :processor and chain = :chain;

-- name: FindAddress :optional
-- Finds the address of an account and pool.
select address from deposit_addresses
where key_id = :key_id and account_id = :account_id and "family" = :family;

-- name: OwnAddresses :many
-- Lists which of some addresses are ours.
select address from deposit_addresses where address = any(:addresses::text[]);

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
    and o.asset = 'ETH' and o.state in ('open', 'seen', 'partly_paid', 'expired', 'cancelled')
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
  first_seen_at
from chain_payments
where processor = :processor and order_id = :order_id
order by first_seen_at, external_id;

-- name: ListUnmined :many
-- Lists the payments of a chain that are in no block and may still come into one.
select external_id, spends from chain_payments
where processor = :processor and chain = :chain and height is null and state <> 'lost';

-- name: ListUnsettled :many
-- Lists the payments of a chain that are in a block and have not settled, each with what its
-- account was paid on this chain within a day before, in micro-dollars. Null: partly unknown.
select p.external_id as "external_id!", p.height as "height!", (
  select case when bool_and(coalesce(o.rate, d.market_rate) is not null)
    then sum(trunc(d.atoms * coalesce(o.rate, d.market_rate)
      / 10::numeric ^ d.decimals))::text end
  from deposit_addresses of_account
  join chain_payments d on d.address = of_account.address
  left join payment_orders o on o.order_id = d.order_id
  where of_account.account_id = a.account_id and d.processor = :processor and d.chain = :chain
    and d.state <> 'lost' and d.first_seen_at > p.first_seen_at - interval '1 day'
) as "usd_micro?"
from chain_payments p
join deposit_addresses a on a.address = p.address
where p.processor = :processor and p.chain = :chain and p.state = 'seen' and p.height is not null;

-- name: ListWaiting :many
-- Lists the payments in blocks that have no order, with their accounts, oldest first.
select p.external_id, p.address, p.asset, p.decimals, p.atoms, p.market_rate, p.first_seen_at,
  a.account_id, a."family"
from chain_payments p
join deposit_addresses a on a.address = p.address
where p.processor = :processor and p.chain = :chain and p.order_id is null and p.state <> 'lost'
  and p.height is not null
order by p.first_seen_at, p.external_id
limit 1000;

-- name: LeaseChain :optional
-- Takes the right to read a chain. No row: it is not due, or somebody else reads it.
update chains
set lease_until = now() + :lease_ms::integer * interval '1 millisecond'
where processor = :processor and chain = :chain and next_read_at <= now()
  and (lease_until is null or lease_until < now())
returning height, hash, lease_until::text as "lease!";

-- name: LockChain :optional
-- Locks a chain that this node reads. No row: the lease has ended.
select height, hash from chains
where processor = :processor and chain = :chain and lease_until::text = :lease
for update;

-- name: MoveChain :run
-- Stores how far a chain was read. The caller has locked it.
update chains set height = :height, hash = :hash where processor = :processor and chain = :chain;

-- name: EndReading :run
-- Ends the reading of a chain.
-- :tip?  the newest block; null: the reading failed
update chains
set tip = coalesce(:tip, tip), read_at = case when :tip::bigint is null then read_at else now() end,
  lease_until = null, next_read_at = now() + :next_ms::integer * interval '1 millisecond'
where processor = :processor and chain = :chain and lease_until::text = :lease;

-- name: AssignPayments :run
-- Gives each payment that has no order the one of its coin and chain whose quote covered its first
-- sight: the newest. Blocks can say a time of some minutes ago.
update chain_payments p
set order_id = (
  select o.order_id from payment_orders o
  join deposit_addresses a on a.account_id = o.account_id and a."family" = o."family"
  where a.address = p.address and o.processor = p.processor and o.network = p.chain
    and o.asset = p.asset and o.kind = 'pack' and o.external_id is not null
    and p.first_seen_at between o.created_at - interval '10 minutes' and o.quoted_until
  order by o.created_at desc
  limit 1
)
where p.processor = :processor and p.chain = :chain and p.order_id is null and p.state <> 'lost';

-- name: PutPaymentOrder :run
-- Gives payments without an order this one.
update chain_payments set order_id = :order_id
where processor = :processor and external_id = any(:external_ids::text[]) and order_id is null;

-- name: ConfirmPayment :run
-- Stores how many blocks a payment needs, and whether it has them.
update chain_payments
set needed = :needed, state = case when :is_settled::boolean then 'settled' else state end
where processor = :processor and external_id = :external_id;

-- name: MarkMissing :run
-- Notes which payments in no block wait for one, and which are gone.
-- :waiting  external ids
update chain_payments
set missing_since = case when external_id = any(:waiting::text[]) then null
  else coalesce(missing_since, now()) end
where processor = :processor and chain = :chain and height is null and state <> 'lost';

-- name: OrphanPayments :many
-- Takes payments of some heights out of their blocks, because the chain left these.
-- :but  the external ids of payments that stay
update chain_payments
set height = null, hash = null, missing_since = now()
where processor = :processor and chain = :chain and height between :from and :to
  and external_id <> all(:but::text[])
returning external_id;

-- name: LosePayments :many
-- Gives payments up: those that were replaced, and those that have been gone for too long.
-- :replaced  external ids
update chain_payments
set state = 'lost', height = null, hash = null
where processor = :processor and chain = :chain and state <> 'lost'
  and (external_id = any(:replaced::text[])
    or missing_since < now() - :missing_ms::bigint * interval '1 millisecond')
returning external_id;

-- name: LoseNative :many
-- Gives up the payments of Ether above a height, which the chain left: their ids never return.
with lost as (
  update chain_payments
  set state = 'lost', height = null, hash = null
  where processor = :processor and chain = :chain and asset = 'ETH' and height > :above
  returning external_id, address, atoms
), moved as (
  update address_balances b
  set height = :above,
    atoms = b.atoms - (select coalesce(sum(l.atoms), 0) from lost l where l.address = b.address)
  where b.processor = :processor and b.chain = :chain and b.height > :above
)
select external_id from lost;

-- name: MoveBalance :run
-- Stores a balance. Changes no row: another node has done so.
-- :from  the height of the one before
update address_balances
set atoms = :atoms, nonce = :nonce, height = :height, block_at = :block_at
where processor = :processor and chain = :chain and address = :address and height = :from;

-- name: DropBlocks :run
-- Forgets the blocks above a height: the chain left them.
delete from chain_blocks where processor = :processor and chain = :chain and height > :above;
