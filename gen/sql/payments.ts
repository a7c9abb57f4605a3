// Made of src/payments/sql by `npm run generate`. Do not edit.

import { type Json, type Many, many, type One, one, type Optional, optional, type Run, run } from "../../src/postgres/statement.ts";

// chains.sql

/**
 * Begins to read a chain.
 */
export const ensureChain: Run<{ processor: string; chain: string }> = run(
  "payments/ensure-chain",
  `-- payments/ensure-chain
insert into chains (processor, chain) values ($1, $2)
on conflict (processor, chain) do nothing`,
  (p) => [p.processor, p.chain],
  5000,
);

export type TakeIndexRow = { index: bigint };
/**
 * Takes the next index of an account key.
 */
export const takeIndex: One<{ keyId: string }, TakeIndexRow> = one(
  "payments/take-index",
  `-- payments/take-index
insert into deposit_keys as k (key_id, next_index) values ($1, 1)
on conflict (key_id) do update set next_index = k.next_index + 1
returning next_index - 1 as index`,
  (p) => [p.keyId],
  (v) => ({ index: v[0] }) as never,
  "",
  5000,
);

/**
 * Stores the address of an account and pool. Changes no row: they have one.
 */
export const insertAddress: Run<{ keyId: string; index: bigint | number; address: string; accountId: string; family: "v1" | "v2" }> = run(
  "payments/insert-address",
  `-- payments/insert-address
insert into deposit_addresses (key_id, index, address, account_id, "family")
values ($1, $2, $3, $4, $5)
on conflict (account_id, "family", key_id) do nothing`,
  (p) => [p.keyId, p.index, p.address, p.accountId, p.family],
  5000,
);

/**
 * Stores what a chain says of one payment, with its transactions. Changes no row: nothing became
 * of it.
 * `height`: null: it is in no block yet
 * `hash`: of that block
 * `blockAt`: its time
 * `marketRate`: micro-dollars of one coin at its first sight; null: unknown
 * `spends`: the outputs that it spends, where a chain has them
 * `hashes`: of its largest transactions
 * `transactions`: how many it has
 */
export const putChainPayment: Run<{ processor: string; chain: string; externalId: string; hashes: readonly string[]; address: string; asset: string; decimals: number; atoms: string | bigint; height: bigint | number | null; hash: string | null; blockAt: Date | string | null; firstSeenAt: Date | string; marketRate: bigint | number | null; spends: readonly string[]; needed: number; transactions: number }> = run(
  "payments/put-chain-payment",
  `-- payments/put-chain-payment
with noted as (
  insert into payment_transactions (processor, chain, tx, external_id)
  select $1, $2, hash, $3
  from unnest($4::text[]) as hash
  on conflict do nothing
)
insert into chain_payments as p (processor, external_id, chain, address, asset, decimals, atoms,
  state, height, hash, block_at, first_seen_at, market_rate, spends, needed, transactions)
values ($1, $3, $2, $5, $6, $7, $8,
  'seen', $9, $10, $11, $12, $13, $14, $15, $16)
on conflict (processor, external_id) do update
set height = coalesce(excluded.height, p.height), hash = coalesce(excluded.hash, p.hash),
  block_at = coalesce(excluded.block_at, p.block_at),
  first_seen_at = least(p.first_seen_at, excluded.first_seen_at), missing_since = null,
  -- One that was lost came back: the order asks a person.
  state = case when p.state = 'lost' then 'seen' else p.state end
where p.state = 'lost' or p.missing_since is not null
  or (excluded.height is not null and p.hash is distinct from excluded.hash)`,
  (p) => [p.processor, p.chain, p.externalId, p.hashes, p.address, p.asset, p.decimals, p.atoms, p.height, p.hash, p.blockAt, p.firstSeenAt, p.marketRate, p.spends, p.needed, p.transactions],
  5000,
);

/**
 * Begins to watch the balances of addresses that are new. They are expected to be unused.
 */
export const ensureBalances: Run<{ processor: string; chain: string; height: bigint | number }> = run(
  "payments/ensure-balances",
  `-- payments/ensure-balances
insert into address_balances (processor, chain, address, atoms, nonce, height, block_at)
select $1, $2, a.address, 0, 0, $3, a.created_at
from deposit_addresses a
where a.address like '0x%' and not exists (
  select from address_balances b
  where b.processor = $1 and b.chain = $2 and b.address = a.address
)
on conflict (processor, chain, address) do nothing`,
  (p) => [p.processor, p.chain, p.height],
  5000,
);

export type FindChainRow = { height: bigint | null; tip: bigint | null; readAt: Date | null };
/**
 * Finds how far a chain was read, and when last up to its newest block.
 */
export const findChain: Optional<{ processor: string; chain: string }, FindChainRow> = optional(
  "payments/find-chain",
  `-- payments/find-chain
select height, tip, read_at from chains where processor = $1 and chain = $2`,
  (p) => [p.processor, p.chain],
  (v) => ({ height: v[0], tip: v[1], readAt: v[2] }) as never,
  "height tip readAt",
  5000,
);

export type ListUnreadChainsRow = { processor: string; chain: string; since: Date; block: bigint | null };
/**
 * Lists the chains that were not read up to their newest block for two minutes.
 */
export const listUnreadChains: Many<undefined, ListUnreadChainsRow> = many(
  "payments/list-unread-chains",
  `-- payments/list-unread-chains
select processor, chain, coalesce(read_at, added_at) as since, unread_block as block
from chains
where coalesce(read_at, added_at) < now() - interval '2 minutes'`,
  () => [],
  (v) => ({ processor: v[0], chain: v[1], since: v[2], block: v[3] }) as never,
  "block",
  5000,
);

export type FindAddressRow = { address: string };
/**
 * Finds the address of an account and pool.
 */
export const findAddress: Optional<{ keyId: string; accountId: string; family: "v1" | "v2" }, FindAddressRow> = optional(
  "payments/find-address",
  `-- payments/find-address
select address from deposit_addresses
where key_id = $1 and account_id = $2 and "family" = $3`,
  (p) => [p.keyId, p.accountId, p.family],
  (v) => ({ address: v[0] }) as never,
  "",
  5000,
);

export type CountAddressesRow = { addresses: bigint };
/**
 * Counts the addresses of an account key that were given. No row: none was.
 */
export const countAddresses: Optional<{ keyId: string }, CountAddressesRow> = optional(
  "payments/count-addresses",
  `-- payments/count-addresses
select next_index as addresses from deposit_keys where key_id = $1`,
  (p) => [p.keyId],
  (v) => ({ addresses: v[0] }) as never,
  "",
  5000,
);

export type ListGivenRow = { index: bigint; address: string; accountId: string; family: "v1" | "v2"; createdAt: Date };
/**
 * Lists the addresses of an account key, in the order in which they were given.
 * `after`: the index of the last one of the page before
 */
export const listGiven: Many<{ keyId: string; after: bigint | number; rows: bigint | number }, ListGivenRow> = many(
  "payments/list-given",
  `-- payments/list-given
select index, address, account_id, "family", created_at
from deposit_addresses
where key_id = $1 and index > $2
order by index
limit $3`,
  (p) => [p.keyId, p.after, p.rows],
  (v) => ({ index: v[0], address: v[1], accountId: v[2], family: v[3], createdAt: v[4] }) as never,
  "",
  5000,
);

export type OwnAddressesRow = { address: string; accountId: string };
/**
 * Lists which of some addresses are ours, with their accounts.
 */
export const ownAddresses: Many<{ addresses: readonly string[] }, OwnAddressesRow> = many(
  "payments/own-addresses",
  `-- payments/own-addresses
select address, account_id from deposit_addresses where address = any($1::text[])`,
  (p) => [p.addresses],
  (v) => ({ address: v[0], accountId: v[1] }) as never,
  "",
  5000,
);

export type ListAddressesRow = { address: string };
/**
 * Lists the addresses of EVM chains, page by page.
 */
export const listAddresses: Many<{ after: string; rows: bigint | number }, ListAddressesRow> = many(
  "payments/list-addresses",
  `-- payments/list-addresses
select address from deposit_addresses
where address > $1 and address like '0x%'
order by address
limit $2`,
  (p) => [p.after, p.rows],
  (v) => ({ address: v[0] }) as never,
  "",
  5000,
);

export type ListBalancesRow = { address: string; atoms: string; nonce: bigint; height: bigint; blockAt: Date };
/**
 * Lists the balances below a height to compare next: those that an order of Ether awaits, then the
 * oldest.
 */
export const listBalances: Many<{ processor: string; chain: string; below: bigint | number; native: string; rows: bigint | number }, ListBalancesRow> = many(
  "payments/list-balances",
  `-- payments/list-balances
select b.address, b.atoms, b.nonce, b.height, b.block_at
from address_balances b
where b.processor = $1 and b.chain = $2 and b.height < $3
order by exists (
  select from payment_orders o
  join deposit_addresses a on a.account_id = o.account_id and a."family" = o."family"
  where a.address = b.address and o.processor = $1 and o.network = $2
    and o.asset = $4 and o.state in ('open', 'seen', 'partly_paid', 'expired', 'cancelled')
    and o.quoted_until > now() - interval '2 hours'
) desc, b.height, b.address
limit $5`,
  (p) => [p.processor, p.chain, p.below, p.native, p.rows],
  (v) => ({ address: v[0], atoms: v[1], nonce: v[2], height: v[3], blockAt: v[4] }) as never,
  "",
  5000,
);

export type ListBlocksRow = { height: bigint; hash: string };
/**
 * Lists the blocks of a chain that are remembered, newest first.
 */
export const listBlocks: Many<{ processor: string; chain: string }, ListBlocksRow> = many(
  "payments/list-blocks",
  `-- payments/list-blocks
select height, hash from chain_blocks
where processor = $1 and chain = $2
order by height desc`,
  (p) => [p.processor, p.chain],
  (v) => ({ height: v[0], hash: v[1] }) as never,
  "",
  5000,
);

export type ListChainPaymentsRow = { externalId: string; network: string; asset: string; decimals: number; atoms: string; state: "seen" | "settled" | "lost"; height: bigint | null; marketRate: bigint | null; needed: number; firstSeenAt: Date; blockAt: Date | null };
/**
 * Lists what arrived for an order, as its chain says it.
 */
export const listChainPayments: Many<{ processor: string; orderId: string }, ListChainPaymentsRow> = many(
  "payments/list-chain-payments",
  `-- payments/list-chain-payments
select external_id, chain as network, asset, decimals, atoms, state, height, market_rate, needed,
  first_seen_at, block_at
from chain_payments
where processor = $1 and order_id = $2
order by first_seen_at, external_id`,
  (p) => [p.processor, p.orderId],
  (v) => ({ externalId: v[0], network: v[1], asset: v[2], decimals: v[3], atoms: v[4], state: v[5], height: v[6], marketRate: v[7], needed: v[8], firstSeenAt: v[9], blockAt: v[10] }) as never,
  "height marketRate blockAt",
  5000,
);

export type ListUnminedRow = { externalId: string; spends: string[] };
/**
 * Lists the payments of a chain that are in no block and may still come into one.
 */
export const listUnmined: Many<{ processor: string; chain: string }, ListUnminedRow> = many(
  "payments/list-unmined",
  `-- payments/list-unmined
select external_id, spends from chain_payments
where processor = $1 and chain = $2 and height is null and state <> 'lost'`,
  (p) => [p.processor, p.chain],
  (v) => ({ externalId: v[0], spends: v[1] }) as never,
  "",
  5000,
);

export type ListSettlingRow = { address: string; accountId: string; isFlooded: boolean };
/**
 * Lists addresses of which a payment seems to have the blocks that it needs: those with more than
 * 100 payments in blocks last, then the lowest block first.
 * `height`: the cursor
 * `byBlocks`: true: it needs as many as were stored with it; false: one
 */
export const listSettling: Many<{ processor: string; chain: string; byBlocks: boolean; height: bigint | number; rows: bigint | number }, ListSettlingRow> = many(
  "payments/list-settling",
  `-- payments/list-settling
select ready.address, a.account_id, ready.is_flooded as is_flooded
from (
  select p.address, count(*) > 100 as is_flooded, min(p.height) as lowest
  from chain_payments p
  where p.processor = $1 and p.chain = $2 and p.state = 'seen' and p.height is not null
  group by p.address
  having min(p.height + case when $3::boolean then p.needed else 1 end)
    <= $4::bigint + 1
  order by is_flooded, lowest, p.address
  limit $5
) ready
join deposit_addresses a on a.address = ready.address
order by ready.is_flooded, ready.lowest, ready.address`,
  (p) => [p.processor, p.chain, p.byBlocks, p.height, p.rows],
  (v) => ({ address: v[0], accountId: v[1], isFlooded: v[2] }) as never,
  "",
  5000,
);

export type SumDaysRow = { accountId: string; usdMicro: string | null };
/**
 * Sums what accounts were paid on a chain within a day, and what is unsettled, in micro-dollars.
 * Null: partly unknown.
 */
export const sumDays: Many<{ accountIds: readonly string[]; processor: string; chain: string }, SumDaysRow> = many(
  "payments/sum-days",
  `-- payments/sum-days
select a.account_id as account_id,
  case when bool_and(coalesce(o.rate, p.market_rate) is not null)
    then sum(trunc(p.atoms * coalesce(o.rate, p.market_rate) / 10::numeric ^ p.decimals))::text
  end as usd_micro
from deposit_addresses a
join chain_payments p on p.address = a.address
left join payment_orders o on o.order_id = p.order_id and o.kind = 'pack'
where a.account_id = any($1::text[]) and p.processor = $2 and p.chain = $3
  and p.state <> 'lost' and (p.state = 'seen' or p.first_seen_at > now() - interval '1 day')
group by a.account_id`,
  (p) => [p.accountIds, p.processor, p.chain],
  (v) => ({ accountId: v[0], usdMicro: v[1] }) as never,
  "usdMicro",
  5000,
);

export type ListWaitingRow = { externalId: string; address: string; asset: string; decimals: number; atoms: string; marketRate: bigint | null; firstSeenAt: Date; accountId: string; family: "v1" | "v2" };
/**
 * Lists the payments in blocks that have no order, with their accounts, oldest first: at most 20 of
 * each address.
 */
export const listWaiting: Many<{ processor: string; chain: string }, ListWaitingRow> = many(
  "payments/list-waiting",
  `-- payments/list-waiting
select external_id, address, asset, decimals, atoms, market_rate, first_seen_at, account_id,
  "family"
from (
  select p.external_id, p.address, p.asset, p.decimals, p.atoms, p.market_rate, p.first_seen_at,
    a.account_id, a."family",
    row_number() over (partition by p.address order by p.first_seen_at, p.external_id) as place
  from chain_payments p
  join deposit_addresses a on a.address = p.address
  where p.processor = $1 and p.chain = $2 and p.order_id is null and p.state <> 'lost'
    and p.height is not null
) waiting
where place <= 20
order by place, first_seen_at, external_id
limit 500`,
  (p) => [p.processor, p.chain],
  (v) => ({ externalId: v[0], address: v[1], asset: v[2], decimals: v[3], atoms: v[4], marketRate: v[5], firstSeenAt: v[6], accountId: v[7], family: v[8] }) as never,
  "marketRate",
  5000,
);

export type LeaseChainRow = { height: bigint | null; hash: string | null; chunkBlocks: number; lease: string };
/**
 * Takes the right to read a chain. No row: it is not due, or somebody else reads it.
 */
export const leaseChain: Optional<{ leaseMs: number; processor: string; chain: string }, LeaseChainRow> = optional(
  "payments/lease-chain",
  `-- payments/lease-chain
update chains
set lease_until = now() + $1::integer * interval '1 millisecond'
where processor = $2 and chain = $3 and next_read_at <= now()
  and (lease_until is null or lease_until < now())
returning height, hash, chunk_blocks, lease_until::text as lease`,
  (p) => [p.leaseMs, p.processor, p.chain],
  (v) => ({ height: v[0], hash: v[1], chunkBlocks: v[2], lease: v[3] }) as never,
  "height hash",
  5000,
);

export type LockChainRow = { height: bigint | null; hash: string | null };
/**
 * Locks a chain that this node reads. No row: the lease has ended.
 */
export const lockChain: Optional<{ processor: string; chain: string; lease: string }, LockChainRow> = optional(
  "payments/lock-chain",
  `-- payments/lock-chain
select height, hash from chains
where processor = $1 and chain = $2 and lease_until::text = $3
for update`,
  (p) => [p.processor, p.chain, p.lease],
  (v) => ({ height: v[0], hash: v[1] }) as never,
  "height hash",
  5000,
);

/**
 * Moves the cursor of a chain to the last of some blocks. They are remembered, and those of long
 * ago forgotten. The caller has locked the chain.
 * `kept`: how many are remembered
 */
export const moveChain: Run<{ heights: readonly (bigint | number)[]; hashes: readonly string[]; processor: string; chain: string; kept: number }> = run(
  "payments/move-chain",
  `-- payments/move-chain
with blocks as (
  select height, hash from unnest($1::bigint[], $2::text[]) as block (height, hash)
), forgotten as (
  delete from chain_blocks
  where processor = $3 and chain = $4 and height < (
    select b.height from chain_blocks b
    where b.processor = $3 and b.chain = $4
    order by b.height desc
    offset $5::integer limit 1
  )
), remembered as (
  insert into chain_blocks (processor, chain, height, hash)
  select $3, $4, height, hash from blocks
  on conflict (processor, chain, height) do update set hash = excluded.hash
)
update chains c
set height = last.height, hash = last.hash
from (select height, hash from blocks order by height desc limit 1) last
where c.processor = $3 and c.chain = $4`,
  (p) => [p.heights, p.hashes, p.processor, p.chain, p.kept],
  5000,
);

/**
 * Notes that a chunk of blocks was read: the next one may have twice as many. The caller has locked
 * the chain.
 */
export const endChunk: Run<{ most: number; processor: string; chain: string }> = run(
  "payments/end-chunk",
  `-- payments/end-chunk
update chains
set chunk_blocks = least($1::integer, chunk_blocks * 2), failures = 0, unread_block = null
where processor = $2 and chain = $3`,
  (p) => [p.most, p.processor, p.chain],
  5000,
);

/**
 * Ends a reading of a chain.
 * `tip`: the newest block
 * `isWhole`: true: all blocks up to it were read
 */
export const endReading: Run<{ tip: bigint | number; isWhole: boolean; nextMs: number; processor: string; chain: string; lease: string }> = run(
  "payments/end-reading",
  `-- payments/end-reading
update chains
set tip = $1, read_at = case when $2::boolean then now() else read_at end,
  lease_until = null, next_read_at = now() + $3::integer * interval '1 millisecond'
where processor = $4 and chain = $5 and lease_until::text = $6`,
  (p) => [p.tip, p.isWhole, p.nextMs, p.processor, p.chain, p.lease],
  5000,
);

export type FailReadingRow = { unreadBlock: bigint | null };
/**
 * Ends a reading that failed. After three failures the next chunk has half as many blocks; one that
 * cannot be halved is a block that cannot be read. Returns that block, once in three failures.
 */
export const failReading: Optional<{ nextMs: number; processor: string; chain: string; lease: string }, FailReadingRow> = optional(
  "payments/fail-reading",
  `-- payments/fail-reading
update chains
set failures = (failures + 1) % 3,
  chunk_blocks = case when failures = 2 then greatest(1, chunk_blocks / 2) else chunk_blocks end,
  unread_block = case when failures = 2 and chunk_blocks = 1 then height + 1 else unread_block end,
  lease_until = null, next_read_at = now() + $1::integer * interval '1 millisecond'
where processor = $2 and chain = $3 and lease_until::text = $4
returning case when failures = 0 then unread_block end as unread_block`,
  (p) => [p.nextMs, p.processor, p.chain, p.lease],
  (v) => ({ unreadBlock: v[0] }) as never,
  "unreadBlock",
  5000,
);

/**
 * Gives each payment that has no order the one of its coin and chain whose quote covered its first
 * sight: the newest. One that is younger than the payment by at most 2 minutes may take it, too.
 * Asks for a look at those orders.
 */
export const assignPayments: Run<{ processor: string; chain: string }> = run(
  "payments/assign-payments",
  `-- payments/assign-payments
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
  where w.processor = $1 and w.chain = $2 and w.order_id is null
    and w.state <> 'lost' and p.processor = w.processor and p.external_id = w.external_id
  returning p.order_id
)
update payment_orders set hook_at = now(), next_look_at = now()
where order_id in (select order_id from assigned)`,
  (p) => [p.processor, p.chain],
  5000,
);

/**
 * Gives payments without an order this one.
 */
export const putPaymentOrder: Run<{ orderId: string; processor: string; externalIds: readonly string[] }> = run(
  "payments/put-payment-order",
  `-- payments/put-payment-order
update chain_payments set order_id = $1
where processor = $2 and external_id = any($3::text[]) and order_id is null`,
  (p) => [p.orderId, p.processor, p.externalIds],
  5000,
);

export type RaiseNeededRow = { externalId: string };
/**
 * Stores that some unsettled payments to addresses need more blocks by now. Returns those that
 * changed.
 */
export const raiseNeeded: Many<{ addresses: readonly string[]; needed: readonly number[]; processor: string; chain: string; rows: bigint | number }, RaiseNeededRow> = many(
  "payments/raise-needed",
  `-- payments/raise-needed
with raised as (
  select p.external_id, c.needed
  from unnest($1::text[], $2::integer[]) as c (address, needed)
  join chain_payments p on p.address = c.address
  where p.processor = $3 and p.chain = $4
    and p.state = 'seen' and p.height is not null and p.needed < c.needed
  limit $5
)
update chain_payments p
set needed = r.needed
from raised r
where p.processor = $3 and p.external_id = r.external_id
returning p.external_id`,
  (p) => [p.addresses, p.needed, p.processor, p.chain, p.rows],
  (v) => ({ externalId: v[0] }) as never,
  "",
  5000,
);

export type SettlePaymentsRow = { externalId: string };
/**
 * Settles a page of payments that have the blocks they need: of each address at most 20, and those
 * of flooded addresses last, so that nobody's payments wait for those of somebody else.
 * `height`: the cursor
 * `needed`: blocks of each address
 */
export const settlePayments: Many<{ addresses: readonly string[]; needed: readonly number[]; flooded: readonly boolean[]; processor: string; chain: string; height: bigint | number; rows: bigint | number }, SettlePaymentsRow> = many(
  "payments/settle-payments",
  `-- payments/settle-payments
with page as (
  select p.external_id
  from unnest($1::text[], $2::integer[], $3::boolean[])
    as c (address, needed, flooded)
  cross join lateral (
    select external_id, height
    from chain_payments
    where processor = $4 and chain = $5 and address = c.address and state = 'seen'
      and height is not null and height <= $6::bigint + 1 - c.needed
    order by height
    limit 20
  ) p
  order by c.flooded, p.height, p.external_id
  limit $7
)
update chain_payments p
set state = 'settled'
from page
where p.processor = $4 and p.external_id = page.external_id
returning p.external_id`,
  (p) => [p.addresses, p.needed, p.flooded, p.processor, p.chain, p.height, p.rows],
  (v) => ({ externalId: v[0] }) as never,
  "",
  5000,
);

/**
 * Lets a person look at the newest order of each of some addresses, once.
 */
export const markFlooded: Run<{ addresses: readonly string[]; processor: string; chain: string }> = run(
  "payments/mark-flooded",
  `-- payments/mark-flooded
update payment_orders o
set faults = array(select distinct unnest(o.faults || 'flooded'::text) order by 1),
  hook_at = now(), next_look_at = now()
where o.order_id in (
  select max(p.order_id)
  from chain_payments p
  where p.address = any($1::text[]) and p.processor = $2 and p.chain = $3
    and p.state = 'seen' and p.height is not null
  group by p.address
) and not exists (
  select from payment_orders f
  where f.account_id = o.account_id and 'flooded' = any(f.faults)
)`,
  (p) => [p.addresses, p.processor, p.chain],
  5000,
);

/**
 * Notes which payments in no block wait for one, and which are gone.
 * `waiting`: external ids
 */
export const markMissing: Run<{ waiting: readonly string[]; processor: string; chain: string }> = run(
  "payments/mark-missing",
  `-- payments/mark-missing
update chain_payments
set missing_since = case when external_id = any($1::text[]) then null
  else coalesce(missing_since, now()) end
where processor = $2 and chain = $3 and height is null and state <> 'lost'`,
  (p) => [p.waiting, p.processor, p.chain],
  5000,
);

export type OrphanPaymentsRow = { externalId: string };
/**
 * Takes the payments above a height out of their blocks, because the chain left these. Those that
 * spend outputs may come into another block; the others are lost with their block.
 */
export const orphanPayments: Many<{ processor: string; chain: string; above: bigint | number }, OrphanPaymentsRow> = many(
  "payments/orphan-payments",
  `-- payments/orphan-payments
update chain_payments
set state = case when spends = '{}' then 'lost' else 'seen' end, height = null, hash = null,
  missing_since = case when spends = '{}' then null else now() end
where processor = $1 and chain = $2 and height > $3 and state <> 'lost'
returning external_id`,
  (p) => [p.processor, p.chain, p.above],
  (v) => ({ externalId: v[0] }) as never,
  "",
  5000,
);

export type ListInBlocksRow = { externalId: string; atoms: string };
/**
 * Lists the payments of tokens in some blocks.
 */
export const listInBlocks: Many<{ processor: string; chain: string; from: bigint | number; to: bigint | number; native: string }, ListInBlocksRow> = many(
  "payments/list-in-blocks",
  `-- payments/list-in-blocks
select external_id, atoms from chain_payments
where processor = $1 and chain = $2 and height between $3 and $4
  and state <> 'lost' and asset <> $5`,
  (p) => [p.processor, p.chain, p.from, p.to, p.native],
  (v) => ({ externalId: v[0], atoms: v[1] }) as never,
  "",
  5000,
);

/**
 * Gives up payments whose blocks the chain left.
 */
export const loseWithBlocks: Run<{ processor: string; externalIds: readonly string[] }> = run(
  "payments/lose-with-blocks",
  `-- payments/lose-with-blocks
update chain_payments
set state = 'lost', height = null, hash = null
where processor = $1 and external_id = any($2::text[]) and state <> 'lost'`,
  (p) => [p.processor, p.externalIds],
  5000,
);

export type FindFirstSightsRow = { tx: string; address: string; firstSeenAt: Date };
/**
 * Finds when payments whose blocks the chain left were first seen, by transaction and address.
 */
export const findFirstSights: Many<{ processor: string; chain: string; hashes: readonly string[] }, FindFirstSightsRow> = many(
  "payments/find-first-sights",
  `-- payments/find-first-sights
select t.tx, p.address, min(p.first_seen_at) as first_seen_at
from payment_transactions t
join chain_payments p on p.processor = t.processor and p.external_id = t.external_id
where t.processor = $1 and t.chain = $2 and t.tx = any($3::text[])
  and p.state = 'lost'
group by t.tx, p.address`,
  (p) => [p.processor, p.chain, p.hashes],
  (v) => ({ tx: v[0], address: v[1], firstSeenAt: v[2] }) as never,
  "",
  5000,
);

export type SumDustRow = { address: string; asset: string; atoms: string };
/**
 * Sums what waits in small pieces below a height, by address and asset.
 */
export const sumDust: Many<{ processor: string; chain: string; addresses: readonly string[]; below: bigint | number }, SumDustRow> = many(
  "payments/sum-dust",
  `-- payments/sum-dust
select address, asset, sum(atoms)::text as atoms
from address_dust
where processor = $1 and chain = $2 and address = any($3::text[])
  and height < $4 and taken_height is null
group by address, asset`,
  (p) => [p.processor, p.chain, p.addresses, p.below],
  (v) => ({ address: v[0], asset: v[1], atoms: v[2] }) as never,
  "",
  5000,
);

/**
 * Adds small pieces to those that wait. The pieces of blocks below the oldest one that is
 * remembered become one, since the chain does not leave them any more.
 */
export const putDust: Run<{ addresses: readonly string[]; assets: readonly string[]; heights: readonly (bigint | number)[]; decimals: readonly number[]; atoms: readonly (string | bigint)[]; sinces: readonly (Date | string)[]; processor: string; chain: string }> = run(
  "payments/put-dust",
  `-- payments/put-dust
with pieces as (
  select * from unnest($1::text[], $2::text[], $3::bigint[],
    $4::integer[], $5::numeric[], $6::timestamptz[])
    as piece (address, asset, height, decimals, atoms, since)
), oldest as (
  select min(height) as height from chain_blocks where processor = $7 and chain = $8
), old as (
  delete from address_dust d
  using oldest
  where d.processor = $7 and d.chain = $8 and d.height < oldest.height
    and (d.taken_height is null or d.taken_height < oldest.height)
    and (d.address, d.asset) in (select distinct address, asset from pieces)
  returning d.address, d.asset, d.height, d.decimals, d.atoms, d.since, d.taken_height
)
insert into address_dust as d
  (processor, chain, address, asset, height, decimals, atoms, since)
select $7, $8, address, asset, height, decimals, atoms, since from pieces
union all
select $7, $8, address, asset, max(height), max(decimals), sum(atoms), min(since)
from old where taken_height is null
group by address, asset`,
  (p) => [p.addresses, p.assets, p.heights, p.decimals, p.atoms, p.sinces, p.processor, p.chain],
  5000,
);

/**
 * Notes that the pieces up to a height became part of a payment of that height.
 */
export const takeDust: Run<{ height: bigint | number; processor: string; chain: string; address: string; asset: string }> = run(
  "payments/take-dust",
  `-- payments/take-dust
update address_dust
set taken_height = $1
where processor = $2 and chain = $3 and address = $4 and asset = $5
  and height <= $1 and taken_height is null`,
  (p) => [p.height, p.processor, p.chain, p.address, p.asset],
  5000,
);

/**
 * Forgets the pieces above a height, which the chain left; those of payments above it wait again.
 */
export const returnDust: Run<{ processor: string; chain: string; above: bigint | number }> = run(
  "payments/return-dust",
  `-- payments/return-dust
with gone as (
  delete from address_dust where processor = $1 and chain = $2 and height > $3
)
update address_dust
set taken_height = null
where processor = $1 and chain = $2 and height <= $3 and taken_height > $3`,
  (p) => [p.processor, p.chain, p.above],
  5000,
);

export type LosePaymentsRow = { externalId: string };
/**
 * Gives payments up: those that were replaced, and those that have been gone for too long.
 * `replaced`: external ids
 */
export const losePayments: Many<{ processor: string; chain: string; replaced: readonly string[]; missingMs: bigint | number }, LosePaymentsRow> = many(
  "payments/lose-payments",
  `-- payments/lose-payments
update chain_payments
set state = 'lost', height = null, hash = null
where processor = $1 and chain = $2 and state <> 'lost' and height is null
  and (external_id = any($3::text[])
    or missing_since < now() - $4::bigint * interval '1 millisecond')
returning external_id`,
  (p) => [p.processor, p.chain, p.replaced, p.missingMs],
  (v) => ({ externalId: v[0] }) as never,
  "",
  5000,
);

export type LoseNativeRow = { externalId: string };
/**
 * Gives up the payments of Ether above a height, which the chain left: their ids never return.
 */
export const loseNative: Many<{ processor: string; chain: string; native: string; above: bigint | number }, LoseNativeRow> = many(
  "payments/lose-native",
  `-- payments/lose-native
with lost as (
  update chain_payments
  set state = 'lost', height = null, hash = null
  where processor = $1 and chain = $2 and asset = $3 and height > $4
  returning external_id, address, atoms
), recorded as (
  select p.address, p.atoms
  from sweep_payments p
  join sweeps s on s.sweep_id = p.sweep_id
  where s.processor = $1 and s.network = $2 and p.height > $4
    and p.granted_by is null
), moved as (
  update address_balances b
  set height = $4,
    atoms = greatest(0, b.atoms
      - (select coalesce(sum(l.atoms), 0) from lost l where l.address = b.address)
      - (select coalesce(sum(r.atoms), 0) from recorded r where r.address = b.address))
  where b.processor = $1 and b.chain = $2 and b.height > $4
)
select external_id from lost`,
  (p) => [p.processor, p.chain, p.native, p.above],
  (v) => ({ externalId: v[0] }) as never,
  "",
  5000,
);

/**
 * Stores a balance. Changes no row: another node has done so.
 * `from`: the height of the one before
 */
export const moveBalance: Run<{ atoms: string | bigint; nonce: bigint | number; height: bigint | number; blockAt: Date | string; processor: string; chain: string; address: string; from: bigint | number }> = run(
  "payments/move-balance",
  `-- payments/move-balance
update address_balances
set atoms = $1, nonce = $2, height = $3, block_at = $4
where processor = $5 and chain = $6 and address = $7 and height = $8`,
  (p) => [p.atoms, p.nonce, p.height, p.blockAt, p.processor, p.chain, p.address, p.from],
  5000,
);

/**
 * Stores that balances were the same at a later block.
 */
export const keepBalances: Run<{ height: bigint | number; blockAt: Date | string; processor: string; chain: string; addresses: readonly string[] }> = run(
  "payments/keep-balances",
  `-- payments/keep-balances
update address_balances
set height = $1, block_at = $2
where processor = $3 and chain = $4 and address = any($5::text[])
  and height < $1`,
  (p) => [p.height, p.blockAt, p.processor, p.chain, p.addresses],
  5000,
);

/**
 * Forgets the blocks above a height: the chain left them.
 */
export const dropBlocks: Run<{ processor: string; chain: string; above: bigint | number }> = run(
  "payments/drop-blocks",
  `-- payments/drop-blocks
delete from chain_blocks where processor = $1 and chain = $2 and height > $3`,
  (p) => [p.processor, p.chain, p.above],
  5000,
);

export type ListOfTransactionRow = { externalId: string; address: string; asset: string; state: "seen" | "settled" | "lost"; orderId: string | null };
/**
 * Lists the payments that a transaction is a part of.
 * `hashes`: its hash, in the forms in which chains write it
 */
export const listOfTransaction: Many<{ hashes: readonly string[]; processor: string }, ListOfTransactionRow> = many(
  "payments/list-of-transaction",
  `-- payments/list-of-transaction
select c.external_id, c.address, c.asset, c.state, c.order_id
from payment_transactions t
join chain_payments c on c.processor = t.processor and c.external_id = t.external_id
where t.tx = any($1::text[]) and t.processor = $2
order by c.external_id
limit 100`,
  (p) => [p.hashes, p.processor],
  (v) => ({ externalId: v[0], address: v[1], asset: v[2], state: v[3], orderId: v[4] }) as never,
  "orderId",
  5000,
);

// decisions.sql

/**
 * Stores a decision of a person.
 * `facts`: those that it deals with
 * `approvedBy`: null: it needed nobody
 * `micros`: micro-credits, each for the deposit of its position
 */
export const insertDecision: Run<{ decisionId: string; orderId: string; kind: "grant" | "close"; facts: readonly string[]; depositIds: readonly string[]; micros: readonly (bigint | number)[]; reason: string; decidedBy: string; approvedBy: string | null }> = run(
  "payments/insert-decision",
  `-- payments/insert-decision
insert into payment_decisions
  (decision_id, order_id, kind, facts, deposit_ids, micros, reason, decided_by, approved_by)
values ($1, $2, $3, $4, $5, $6, $7, $8,
  $9)`,
  (p) => [p.decisionId, p.orderId, p.kind, p.facts, p.depositIds, p.micros, p.reason, p.decidedBy, p.approvedBy],
  5000,
);

export type FindDecisionRow = { decisionId: string; orderId: string; kind: "grant" | "close"; facts: string[]; depositIds: string[]; micros: bigint[]; reason: string; decidedBy: string; approvedBy: string | null; createdAt: Date };
/**
 * Finds a decision.
 */
export const findDecision: Optional<{ decisionId: string }, FindDecisionRow> = optional(
  "payments/find-decision",
  `-- payments/find-decision
select decision_id, order_id, kind, facts, deposit_ids, micros, reason, decided_by,
  approved_by, created_at
from payment_decisions
where decision_id = $1`,
  (p) => [p.decisionId],
  (v) => ({ decisionId: v[0], orderId: v[1], kind: v[2], facts: v[3], depositIds: v[4], micros: v[5], reason: v[6], decidedBy: v[7], approvedBy: v[8], createdAt: v[9] }) as never,
  "approvedBy",
  5000,
);

export type ListAttentionRow = { orderId: string; accountId: string; decisions: number };
/**
 * Lists the orders that wait for a person, oldest first, with the number of decisions before.
 */
export const listAttention: Many<{ after: string; rows: bigint | number }, ListAttentionRow> = many(
  "payments/list-attention",
  `-- payments/list-attention
select o.order_id, o.account_id,
  (select count(*)::integer from payment_decisions d where d.order_id = o.order_id)
    as decisions
from payment_orders o
where o.attention is not null and o.external_id is not null and o.order_id > $1
order by o.order_id
limit $2`,
  (p) => [p.after, p.rows],
  (v) => ({ orderId: v[0], accountId: v[1], decisions: v[2] }) as never,
  "",
  5000,
);

export type ListDecidedRow = { depositId: string; micro: bigint };
/**
 * Lists what persons granted for an order: micro-credits by deposit.
 */
export const listDecided: Many<{ orderId: string }, ListDecidedRow> = many(
  "payments/list-decided",
  `-- payments/list-decided
select given.deposit_id as deposit_id, given.micro as micro
from payment_decisions d
cross join lateral unnest(d.deposit_ids, d.micros) as given (deposit_id, micro)
where d.order_id = $1
union all
-- A deposit that goes back whole counts no more.
select external_id, 0::bigint
from payment_refunds
where order_id = $1 and external_id is not null and state not in ('refused', 'cancelled')`,
  (p) => [p.orderId],
  (v) => ({ depositId: v[0], micro: v[1] }) as never,
  "",
  5000,
);

// deposits.sql

/**
 * Stores what a look saw of one deposit. States only go forwards, so looks may come in any order
 * and any number. Only one that was lost before it settled may come back, where that is said.
 * Changes no row: the deposit belongs to another order. The caller has locked the order.
 * `marketRate`: micro-dollars of one coin at its first sight; null: unknown
 * `blockAt`: the time of its block
 * `blockRate`: micro-dollars of one coin then, where the quote does not hold so long
 * `processorUsdMicro`: the processor's own valuation, where that counts
 * `mayReturn`: true: its chain can come back to a block that it left
 */
export const upsertDeposit: Run<{ processor: string; externalId: string; orderId: string; accountId: string; family: string; asset: string; network: string; decimals: number; atoms: string | bigint; marketRate: bigint | number | null; processorUsdMicro: bigint | number | null; state: "seen" | "settled" | "lost"; confirmations: number; confirmationsNeeded: number; firstSeenAt: Date | string; blockAt: Date | string | null; blockRate: bigint | number | null; mayReturn: boolean }> = run(
  "payments/upsert-deposit",
  `-- payments/upsert-deposit
insert into payment_deposits as d (processor, external_id, order_id, account_id, "family", asset,
  network, decimals, atoms, market_rate, processor_usd_micro, state, confirmations,
  confirmations_needed, first_seen_at, block_at, block_rate, settled_at)
values ($1, $2, $3, $4, $5, $6,
  $7, $8, $9, $10, $11, $12, $13,
  $14, $15, $16, $17,
  case when $12 = 'settled' then now() end)
on conflict (processor, external_id) do update
set atoms = case
      when d.state <> 'seen' then d.atoms
      when excluded.state = 'settled' then excluded.atoms
      else greatest(d.atoms, excluded.atoms)
    end,
    processor_usd_micro = case
      when d.state = 'seen' then excluded.processor_usd_micro
      else d.processor_usd_micro
    end,
    state = case
      when $18::boolean and d.state = 'lost' and d.settled_at is null then excluded.state
      when 'lost' in (d.state, excluded.state) then 'lost'
      when 'settled' in (d.state, excluded.state) then 'settled'
      else 'seen'
    end,
    returned = d.returned or (d.state = 'lost' and excluded.state <> 'lost'
      and not ($18 and d.settled_at is null)),
    confirmations = greatest(d.confirmations, excluded.confirmations),
    confirmations_needed = excluded.confirmations_needed,
    block_at = coalesce(excluded.block_at, d.block_at),
    block_rate = case when d.valued_by is null then excluded.block_rate else d.block_rate end,
    first_seen_at = least(d.first_seen_at, excluded.first_seen_at),
    settled_at = coalesce(d.settled_at,
      case when d.state = 'seen' or $18 then excluded.settled_at end)
where d.order_id = excluded.order_id`,
  (p) => [p.processor, p.externalId, p.orderId, p.accountId, p.family, p.asset, p.network, p.decimals, p.atoms, p.marketRate, p.processorUsdMicro, p.state, p.confirmations, p.confirmationsNeeded, p.firstSeenAt, p.blockAt, p.blockRate, p.mayReturn],
  5000,
);

export type ListDepositsRow = { orderId: string; externalId: string; asset: string; network: string; decimals: number; atoms: string; marketRate: bigint | null; usdMicro: bigint | null; valuedBy: "quote" | "market" | "lowest" | "processor" | null; processorUsdMicro: bigint | null; state: "seen" | "settled" | "lost"; isReturned: boolean; confirmations: number; confirmationsNeeded: number; firstSeenAt: Date; blockAt: Date | null; blockRate: bigint | null; settledAt: Date | null };
/**
 * Lists what arrived for some orders, oldest first.
 */
export const listDeposits: Many<{ orderIds: readonly string[] }, ListDepositsRow> = many(
  "payments/list-deposits",
  `-- payments/list-deposits
select order_id as order_id, external_id, asset, network, decimals, atoms, market_rate,
  usd_micro, valued_by, processor_usd_micro, state, returned as is_returned, confirmations,
  confirmations_needed, first_seen_at, block_at, block_rate, settled_at
from payment_deposits
where order_id = any($1::text[])
order by first_seen_at, external_id`,
  (p) => [p.orderIds],
  (v) => ({ orderId: v[0], externalId: v[1], asset: v[2], network: v[3], decimals: v[4], atoms: v[5], marketRate: v[6], usdMicro: v[7], valuedBy: v[8], processorUsdMicro: v[9], state: v[10], isReturned: v[11], confirmations: v[12], confirmationsNeeded: v[13], firstSeenAt: v[14], blockAt: v[15], blockRate: v[16], settledAt: v[17] }) as never,
  "marketRate usdMicro valuedBy processorUsdMicro blockAt blockRate settledAt",
  5000,
);

/**
 * Stores what a deposit is worth. It never changes afterwards.
 */
export const valueDeposit: Run<{ usdMicro: bigint | number; valuedBy: "quote" | "market" | "lowest" | "processor"; processor: string; externalId: string }> = run(
  "payments/value-deposit",
  `-- payments/value-deposit
update payment_deposits
set usd_micro = $1, valued_by = $2
where processor = $3 and external_id = $4 and valued_by is null`,
  (p) => [p.usdMicro, p.valuedBy, p.processor, p.externalId],
  5000,
);

/**
 * Keeps the hash of the transaction of a payment. Changes no row: it is kept.
 */
export const noteTransaction: Run<{ processor: string; chain: string; tx: string; externalId: string }> = run(
  "payments/note-transaction",
  `-- payments/note-transaction
insert into payment_transactions (processor, chain, tx, external_id)
values ($1, $2, $3, $4)
on conflict do nothing`,
  (p) => [p.processor, p.chain, p.tx, p.externalId],
  5000,
);

// documents.sql

export type TakeNumberRow = { seller: string; year: number; n: number; cell: string | null };
/**
 * Takes the next number of a kind of document, for the seller of an order, in the current UTC year.
 * Its row stays locked until the end of the transaction, which either uses the number or gives it
 * back: so there is no gap. No row: there is no such order. `cell`: of the installation, whose
 * numbers no other cell gives.
 */
export const takeNumber: Optional<{ kind: "receipt" | "credit_note"; orderId: string }, TakeNumberRow> = optional(
  "payments/take-number",
  `-- payments/take-number
insert into payment_numbers (seller, kind, year, last)
select seller_id, $1, extract(year from now() at time zone 'UTC')::integer, 1
from payment_orders
where order_id = $2
on conflict (seller, kind, year) do update set last = payment_numbers.last + 1
returning seller, year, last as n, (select cell from installation) as cell`,
  (p) => [p.kind, p.orderId],
  (v) => ({ seller: v[0], year: v[1], n: v[2], cell: v[3] }) as never,
  "cell",
  5000,
);

/**
 * Stores a receipt or a credit note. The caller has locked the order and taken the number.
 * `grantN`: the chargeback of a credit note
 * `refundN`: the refund of a credit note
 */
export const insertDocument: Run<{ seller: string; kind: "receipt" | "credit_note"; year: number; n: number; number: string; orderId: string; grantN: number | null; refundN: number | null }> = run(
  "payments/insert-document",
  `-- payments/insert-document
insert into payment_documents (seller, kind, year, n, number, order_id, grant_n, refund_n)
values ($1, $2, $3, $4, $5, $6, $7, $8)`,
  (p) => [p.seller, p.kind, p.year, p.n, p.number, p.orderId, p.grantN, p.refundN],
  5000,
);

export type ListDocumentsRow = { number: string; kind: "receipt" | "credit_note"; issuedAt: Date; sellerName: string; sellerAddress: string; sellerTaxId: string; buyerName: string; buyerAddress: string; buyerTaxId: string; micro: bigint; usdMicro: bigint };
/**
 * Lists the receipt of an order, then its credit notes by number, with what each takes back.
 */
export const listDocuments: Many<{ orderId: string }, ListDocumentsRow> = many(
  "payments/list-documents",
  `-- payments/list-documents
select d.number as number, d.kind as kind, d.issued_at as issued_at,
  o.seller_name as seller_name, o.seller_address as seller_address,
  o.seller_tax_id as seller_tax_id, o.buyer_name as buyer_name,
  o.buyer_address as buyer_address, o.buyer_tax_id as buyer_tax_id,
  coalesce(-g.micro, r.micro, 0) as micro,
  coalesce(-g.micro / 200, nullif(r.usd_micro, 0), r.micro / 200, 0) as usd_micro
from payment_documents d
join payment_orders o on o.order_id = d.order_id
left join payment_grants g on g.order_id = d.order_id and g.n = d.grant_n
left join payment_refunds r on r.order_id = d.order_id and r.n = d.refund_n
where d.order_id = $1
order by d.kind desc, d.issued_at, d.number`,
  (p) => [p.orderId],
  (v) => ({ number: v[0], kind: v[1], issuedAt: v[2], sellerName: v[3], sellerAddress: v[4], sellerTaxId: v[5], buyerName: v[6], buyerAddress: v[7], buyerTaxId: v[8], micro: v[9], usdMicro: v[10] }) as never,
  "",
  5000,
);

export type FindDocumentsRow = { number: string; kind: "receipt" | "credit_note"; issuedAt: Date; position: string; orderId: string; accountId: string; family: "v1" | "v2"; processor: string; sellerName: string; sellerTaxId: string; buyerName: string; buyerTaxId: string; micro: bigint; usdMicro: bigint };
/**
 * Finds receipts and credit notes of a range, oldest first. A micro-dollar is 200 micro-credits.
 * `accountId`: null: of all accounts
 * `to`: exclusive; null: up to now
 * `afterAt`: of the last one of the page before, or the start of the range
 * `afterOrderId`: of the same one
 * `afterNumber`: of the same one
 */
export const findDocuments: Many<{ accountId: string | null; afterAt: Date | string; afterOrderId: string; afterNumber: string; to: Date | string | null; rows: bigint | number }, FindDocumentsRow> = many(
  "payments/find-documents",
  `-- payments/find-documents
select d.number as number, d.kind as kind, d.issued_at as issued_at,
  d.issued_at::text as position, d.order_id as order_id, o.account_id as account_id,
  o."family" as "family", o.processor as processor, o.seller_name as seller_name,
  o.seller_tax_id as seller_tax_id, o.buyer_name as buyer_name,
  o.buyer_tax_id as buyer_tax_id,
  case d.kind
    when 'receipt' then (
      select coalesce(sum(g.micro), 0) from payment_grants g
      where g.order_id = d.order_id and g.micro > 0)
    else coalesce(g.micro, -r.micro, 0)
  end::bigint as micro,
  case d.kind
    when 'receipt' then (
      select coalesce(sum(g.micro / 200), 0) from payment_grants g
      where g.order_id = d.order_id and g.micro > 0)
    else coalesce(g.micro / 200, -nullif(r.usd_micro, 0), -r.micro / 200, 0)
  end::bigint as usd_micro
from payment_documents d
join payment_orders o on o.order_id = d.order_id
left join payment_grants g on g.order_id = d.order_id and g.n = d.grant_n
left join payment_refunds r on r.order_id = d.order_id and r.n = d.refund_n
where ($1::text is null or o.account_id = $1)
  and (d.issued_at, d.order_id, d.number)
    > ($2::timestamptz, $3::text, $4::text)
  and ($5::timestamptz is null or d.issued_at < $5)
order by d.issued_at, d.order_id, d.number
limit $6`,
  (p) => [p.accountId, p.afterAt, p.afterOrderId, p.afterNumber, p.to, p.rows],
  (v) => ({ number: v[0], kind: v[1], issuedAt: v[2], position: v[3], orderId: v[4], accountId: v[5], family: v[6], processor: v[7], sellerName: v[8], sellerTaxId: v[9], buyerName: v[10], buyerTaxId: v[11], micro: v[12], usdMicro: v[13] }) as never,
  "",
  5000,
);

export type FindDocumentRow = { number: string; kind: "receipt" | "credit_note"; orderId: string; createdBy: string };
/**
 * Finds a document of an account by its number. No row: there is none. Two sellers may have given
 * it the same number: the newest counts.
 */
export const findDocument: Optional<{ number: string; accountId: string }, FindDocumentRow> = optional(
  "payments/find-document",
  `-- payments/find-document
select d.number, d.kind, d.order_id, o.created_by
from payment_documents d
join payment_orders o on o.order_id = d.order_id
where d.number = $1 and o.account_id = $2
order by d.issued_at desc
limit 1`,
  (p) => [p.number, p.accountId],
  (v) => ({ number: v[0], kind: v[1], orderId: v[2], createdBy: v[3] }) as never,
  "",
  5000,
);

// events.sql

/**
 * Stores what became true of an order, but for what is stored. An event of a payment gets the hash
 * of its transaction, where one is known. The caller has locked the order.
 * `subjects`: what each is of, such as the number of a refund
 * `depositIds`: the payment of each; empty: none
 */
export const insertEvents: Run<{ kinds: readonly string[]; subjects: readonly string[]; facts: readonly string[]; depositIds: readonly string[]; orderId: string }> = run(
  "payments/insert-events",
  `-- payments/insert-events
insert into payment_events (order_id, kind, subject, facts)
select o.order_id, e.kind, e.subject,
  jsonb_strip_nulls(jsonb_build_object('tx', (
    select min(t.tx) from payment_transactions t
    where t.processor = o.processor and t.external_id = e.deposit_id
  ))) || e.facts::jsonb
from unnest($1::text[], $2::text[], $3::text[], $4::text[])
  as e (kind, subject, facts, deposit_id)
join payment_orders o on o.order_id = $5
on conflict do nothing`,
  (p) => [p.kinds, p.subjects, p.facts, p.depositIds, p.orderId],
  5000,
);

export type ListUnreadEventsRow = { orderId: string; n: bigint; kind: "payment_seen" | "payment_credited" | "payment_short" | "payment_late" | "payment_lost" | "payment_refunded" | "payment_decided"; subject: string; at: Date; facts: Json; accountId: string; family: "v1" | "v2"; asset: string; network: string; decimals: number; createdBy: string };
/**
 * Lists events that have still to become alerts, in the order of their numbers, with what alerts
 * say of their orders.
 */
export const listUnreadEvents: Many<{ rows: bigint | number }, ListUnreadEventsRow> = many(
  "payments/list-unread-events",
  `-- payments/list-unread-events
select e.order_id, e.n, e.kind, e.subject, e.at, e.facts, o.account_id, o."family", o.asset,
  o.network, o.decimals, o.created_by
from payment_events e
join payment_orders o on o.order_id = e.order_id
where not e.is_read
order by e.n
limit $1`,
  (p) => [p.rows],
  (v) => ({ orderId: v[0], n: v[1], kind: v[2], subject: v[3], at: v[4], facts: v[5], accountId: v[6], family: v[7], asset: v[8], network: v[9], decimals: v[10], createdBy: v[11] }) as never,
  "",
  5000,
);

/**
 * Notes that events became alerts.
 */
export const markEventsRead: Run<{ orderIds: readonly string[]; ns: readonly (bigint | number)[] }> = run(
  "payments/mark-events-read",
  `-- payments/mark-events-read
update payment_events e
set is_read = true
from unnest($1::text[], $2::bigint[]) as r (order_id, n)
where e.order_id = r.order_id and e.n = r.n`,
  (p) => [p.orderIds, p.ns],
  5000,
);

export type ListEventsRow = { orderId: string; kind: "payment_seen" | "payment_credited" | "payment_short" | "payment_late" | "payment_lost" | "payment_refunded" | "payment_decided"; at: Date; facts: Json; decimals: number };
/**
 * Lists the events of some orders, oldest first.
 */
export const listEvents: Many<{ orderIds: readonly string[] }, ListEventsRow> = many(
  "payments/list-events",
  `-- payments/list-events
select e.order_id, e.kind, e.at, e.facts, o.decimals
from payment_events e
join payment_orders o on o.order_id = e.order_id
where e.order_id = any($1::text[])
order by e.n`,
  (p) => [p.orderIds],
  (v) => ({ orderId: v[0], kind: v[1], at: v[2], facts: v[3], decimals: v[4] }) as never,
  "",
  5000,
);

// grants.sql

export type InsertGrantRow = { n: number; micro: bigint };
/**
 * Stores the difference between what an order is to be granted and what it was. Bonuses that needed
 * it as a purchase go while less than that is left, but for those that a refund took. No row: there
 * is no difference. The caller has locked the order.
 * `purchaseMicro`: what such a purchase has at least
 */
export const insertGrant: Many<{ orderId: string; targetMicro: bigint | number; purchaseMicro: bigint | number }, InsertGrantRow> = many(
  "payments/insert-grant",
  `-- payments/insert-grant
with granted as (
  select count(*) as rows, coalesce(sum(micro), 0) as micro,
    coalesce(sum(bonus_micro), 0) as bonus_micro
  from payment_grants
  where order_id = $1
), taken as (
  select coalesce(sum(micro), 0) as micro
  from payment_refunds
  where order_id = $1 and state not in ('refused', 'cancelled')
), bonus as (
  select coalesce(sum(p.bonus_micro), 0) as micro
  from promotion_uses u
  join promotions p on p.code_id = u.code_id
  where u.order_id = $1 and u.refund_n is null
), due as (
  select $2::bigint - g.micro as micro, 0 as bonus_micro from granted g
  union all
  select 0, -g.bonus_micro
    - case when $2 - t.micro < $3::bigint then b.micro else 0 end
  from granted g, taken t, bonus b
)
insert into payment_grants (order_id, n, micro, bonus_micro)
select $1, g.rows + row_number() over (order by d.bonus_micro <> 0), d.micro, d.bonus_micro
from due d, granted g
where d.micro <> 0 or d.bonus_micro <> 0
returning n, micro`,
  (p) => [p.orderId, p.targetMicro, p.purchaseMicro],
  (v) => ({ n: v[0], micro: v[1] }) as never,
  "",
  5000,
);

export type InsertRefundRow = { n: number };
/**
 * Begins a refund, and counts it in its order. The caller has locked the order.
 * `externalId`: the deposit that goes back whole; null: an amount
 */
export const insertRefund: One<{ usdMicro: bigint | number; orderId: string; externalId: string | null; micro: bigint | number; state: "asked" | "refused" | "refunding" | "completed" | "cancelling" | "cancelled"; reason: string; madeBy: string; bonusMicro: bigint | number }, InsertRefundRow> = one(
  "payments/insert-refund",
  `-- payments/insert-refund
with counted as (
  update payment_orders set refunded_usd_micro = refunded_usd_micro + $1
  where order_id = $2
)
insert into payment_refunds (order_id, n, usd_micro, external_id, micro, state, reason, made_by,
  bonus_micro)
select $2, count(*) + 1, $1::bigint, $3, $4::bigint, $5, $6,
  $7, $8::bigint
from payment_refunds
where order_id = $2
returning n`,
  (p) => [p.usdMicro, p.orderId, p.externalId, p.micro, p.state, p.reason, p.madeBy, p.bonusMicro],
  (v) => ({ n: v[0] }) as never,
  "",
  5000,
);

export type ListGrantedRow = { micro: bigint; usdMicro: bigint; createdAt: Date };
/**
 * Lists what was granted for an order, oldest first, without what was taken back. A micro-dollar is
 * 200 micro-credits.
 */
export const listGranted: Many<{ orderId: string }, ListGrantedRow> = many(
  "payments/list-granted",
  `-- payments/list-granted
select micro, micro / 200 as usd_micro, created_at
from payment_grants
where order_id = $1 and micro > 0
order by n`,
  (p) => [p.orderId],
  (v) => ({ micro: v[0], usdMicro: v[1], createdAt: v[2] }) as never,
  "",
  5000,
);

export type ListUnpostedRow = { n: number; micro: bigint; accountId: string; family: "v1" | "v2" };
/**
 * Lists the grants of an order without a transfer, oldest first.
 */
export const listUnposted: Many<{ orderId: string }, ListUnpostedRow> = many(
  "payments/list-unposted",
  `-- payments/list-unposted
select g.n, g.micro + g.bonus_micro as micro, o.account_id, o."family"
from payment_grants g
join payment_orders o on o.order_id = g.order_id
where g.order_id = $1 and g.transfer_id is null
order by g.n`,
  (p) => [p.orderId],
  (v) => ({ n: v[0], micro: v[1], accountId: v[2], family: v[3] }) as never,
  "",
  5000,
);

export type ListRefundsRow = { orderId: string; n: number; usdMicro: bigint; externalId: string | null; micro: bigint; bonusMicro: bigint; state: "asked" | "refused" | "refunding" | "completed" | "cancelling" | "cancelled"; transaction: string; reason: string; madeBy: string; createdAt: Date; endedAt: Date | null };
/**
 * Lists the refunds of some orders.
 */
export const listRefunds: Many<{ orderIds: readonly string[] }, ListRefundsRow> = many(
  "payments/list-refunds",
  `-- payments/list-refunds
select order_id, n, usd_micro, external_id, micro, bonus_micro, state, "transaction", reason,
  made_by, created_at, ended_at
from payment_refunds
where order_id = any($1::text[])
order by order_id, n`,
  (p) => [p.orderIds],
  (v) => ({ orderId: v[0], n: v[1], usdMicro: v[2], externalId: v[3], micro: v[4], bonusMicro: v[5], state: v[6], transaction: v[7], reason: v[8], madeBy: v[9], createdAt: v[10], endedAt: v[11] }) as never,
  "externalId endedAt",
  5000,
);

/**
 * Stores the transfer of a grant, and the event of the credits that it brought or took. Changes no
 * row: the grant has its transfer.
 */
export const putTransfer: Run<{ transferId: string; orderId: string; n: number }> = run(
  "payments/put-transfer",
  `-- payments/put-transfer
with put as (
  update payment_grants set transfer_id = $1
  where order_id = $2 and n = $3 and transfer_id is null
  returning order_id, n, micro, bonus_micro
)
insert into payment_events (order_id, kind, subject, facts)
select p.order_id,
  case when p.micro + p.bonus_micro > 0 then 'payment_credited' else 'payment_lost' end,
  p.n::text,
  jsonb_strip_nulls(jsonb_build_object(
    'transfer_id', $1::text,
    'microcredits', abs(p.micro + p.bonus_micro)::text,
    'usd_micro', case when p.micro <> 0 then (abs(p.micro) / 200)::text end,
    'of', case when p.micro = 0 then 'bonus' end,
    'document', (
      select d.number from payment_documents d
      where d.order_id = p.order_id
        and case when p.micro > 0 then d.kind = 'receipt' else d.grant_n = p.n end
    ),
    'atoms', (
      select sum(d.atoms)::text from payment_deposits d
      where d.order_id = p.order_id and d.asset = o.asset and d.network = o.network
        and d.state = 'settled'
    ),
    'tx', (
      select min(t.tx) from payment_transactions t
      where t.processor = o.processor and t.external_id = (
        select d.external_id from payment_deposits d
        where d.order_id = p.order_id and d.settled_at is not null
          and (d.state = 'lost') = (p.micro < 0)
        order by d.settled_at desc, d.external_id
        limit 1
      )
    )
  ))
from put p
join payment_orders o on o.order_id = p.order_id
on conflict do nothing`,
  (p) => [p.transferId, p.orderId, p.n],
  5000,
);

export type MoveRefundRow = { n: number };
/**
 * Moves a refund to another state. No row: it is in another one than expected. A refund that ends
 * without money is not counted in its order any more. The caller has locked the order.
 * `transaction`: of the person who sent the coins
 */
export const moveRefund: Optional<{ to: "asked" | "refused" | "refunding" | "completed" | "cancelling" | "cancelled"; transferId: string | null; cancelTransferId: string | null; transaction: string | null; orderId: string; n: number; from: "asked" | "refused" | "refunding" | "completed" | "cancelling" | "cancelled" }, MoveRefundRow> = optional(
  "payments/move-refund",
  `-- payments/move-refund
with moved as (
  update payment_refunds
  set state = $1, transfer_id = coalesce($2, transfer_id),
    cancel_transfer_id = coalesce($3, cancel_transfer_id),
    "transaction" = coalesce($4, "transaction"),
    ended_at = case when $1 in ('refused', 'completed', 'cancelled') then now() end
  where order_id = $5 and n = $6 and state = $7
  returning usd_micro, n
), counted as (
  update payment_orders o
  set refunded_usd_micro = refunded_usd_micro - m.usd_micro
  from moved m
  where o.order_id = $5 and $1 in ('refused', 'cancelled')
)
select n from moved`,
  (p) => [p.to, p.transferId, p.cancelTransferId, p.transaction, p.orderId, p.n, p.from],
  (v) => ({ n: v[0] }) as never,
  "",
  5000,
);

// hooks.sql

/**
 * Gives a processor its slots for looks.
 */
export const ensureSlots: Run<{ processor: string; slots: number }> = run(
  "payments/ensure-slots",
  `-- payments/ensure-slots
insert into payment_look_slots (processor, slot, used_at)
select $1, slot, now() - interval '1 hour' from generate_series(1, $2::integer) as slot
on conflict (processor, slot) do nothing`,
  (p) => [p.processor, p.slots],
  5000,
);

export type ListNamedRow = { depositId: string };
/**
 * Lists the further payments of an order that webhooks named.
 */
export const listNamed: Many<{ processor: string; externalId: string }, ListNamedRow> = many(
  "payments/list-named",
  `-- payments/list-named
select distinct deposit_id
from payment_hooks
where processor = $1 and external_id = $2 and deposit_id <> ''
order by 1`,
  (p) => [p.processor, p.externalId],
  (v) => ({ depositId: v[0] }) as never,
  "",
  5000,
);

/**
 * Notes a delivery of a webhook, and makes the order that it is about due for a look, unless this
 * delivery was noted before. Changes a row: that order is due now.
 * `externalId`: the order at the processor
 * `depositId`: a further payment of it, which only webhooks name; empty: none
 */
export const receiveHook: Run<{ processor: string; deliveryKey: string; externalId: string; bodySha256: Buffer; depositId: string }> = run(
  "payments/receive-hook",
  `-- payments/receive-hook
with noted as (
  insert into payment_hooks (processor, delivery_key, external_id, body_sha256, deposit_id)
  values ($1, $2, $3, $4, $5)
  on conflict (processor, delivery_key) do nothing
  returning processor
)
update payment_orders
set hook_at = now(), next_look_at = least(next_look_at, now())
where processor = $1 and external_id = $3 and exists (select 1 from noted)`,
  (p) => [p.processor, p.deliveryKey, p.externalId, p.bodySha256, p.depositId],
  5000,
);

/**
 * Removes the deliveries of more than 90 days ago.
 */
export const removeHooks: Run<undefined> = run(
  "payments/remove-hooks",
  `-- payments/remove-hooks
delete from payment_hooks where received_at < now() - interval '90 days'`,
  () => [],
  5000,
);

// orders.sql

/**
 * Stores an order that its processor has still to open. Until then it counts as open for a minute.
 */
export const insertOrder: Run<{ orderId: string; accountId: string; family: "v1" | "v2"; idempotencyKey: string; usdMicro: bigint | number; processor: string; method: string; asset: string; network: string; decimals: number; createdBy: string; sellerId: string; sellerName: string; sellerAddress: string; sellerTaxId: string; buyerName: string; buyerAddress: string; buyerTaxId: string }> = run(
  "payments/insert-order",
  `-- payments/insert-order
insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro, processor,
  method, asset, network, decimals, created_by, seller_id, seller_name, seller_address,
  seller_tax_id, buyer_name, buyer_address, buyer_tax_id, quoted_until, watched_until)
values ($1, $2, $3, $4, $5, $6,
  $7, $8, $9, $10, $11, $12, $13, $14,
  $15, $16, $17, $18,
  now() + interval '1 minute', now() + interval '1 minute')`,
  (p) => [p.orderId, p.accountId, p.family, p.idempotencyKey, p.usdMicro, p.processor, p.method, p.asset, p.network, p.decimals, p.createdBy, p.sellerId, p.sellerName, p.sellerAddress, p.sellerTaxId, p.buyerName, p.buyerAddress, p.buyerTaxId],
  5000,
);

/**
 * Stores an order for what arrived without one. Changes no row: it was stored before.
 */
export const insertDirect: Run<{ orderId: string; accountId: string; family: "v1" | "v2"; idempotencyKey: string; usdMicro: bigint | number; processor: string; method: string; asset: string; network: string; decimals: number; externalId: string; atoms: string | bigint; rate: bigint | number; payTo: string; createdBy: string; sellerId: string; sellerName: string; sellerAddress: string; sellerTaxId: string; buyerName: string; buyerAddress: string; buyerTaxId: string; quotedUntil: Date | string; watchedForMs: bigint | number }> = run(
  "payments/insert-direct",
  `-- payments/insert-direct
insert into payment_orders (order_id, account_id, "family", idempotency_key, kind, usd_micro,
  processor, method, asset, network, decimals, external_id, quoted_atoms, rate, pay_to, created_by,
  seller_id, seller_name, seller_address, seller_tax_id, buyer_name, buyer_address, buyer_tax_id,
  quoted_until, watched_until, next_look_at)
values ($1, $2, $3, $4, 'direct', $5,
  $6, $7, $8, $9, $10, $11, $12, $13, $14,
  $15, $16, $17, $18, $19, $20,
  $21, $22, $23,
  now() + $24::bigint * interval '1 millisecond', now())
on conflict (account_id, idempotency_key) do nothing`,
  (p) => [p.orderId, p.accountId, p.family, p.idempotencyKey, p.usdMicro, p.processor, p.method, p.asset, p.network, p.decimals, p.externalId, p.atoms, p.rate, p.payTo, p.createdBy, p.sellerId, p.sellerName, p.sellerAddress, p.sellerTaxId, p.buyerName, p.buyerAddress, p.buyerTaxId, p.quotedUntil, p.watchedForMs],
  5000,
);

/**
 * Locks an account until the end of the transaction, so that its orders are counted one by one.
 */
export const lockAccount: Run<{ accountId: string }> = run(
  "payments/lock-account",
  `-- payments/lock-account
insert into payment_accounts (account_id) values ($1)
on conflict (account_id) do update set account_id = excluded.account_id`,
  (p) => [p.accountId],
  5000,
);

export type ReadOrdersRow = { orderId: string; accountId: string; family: "v1" | "v2"; idempotencyKey: string; kind: "pack" | "direct"; usdMicro: bigint; processor: string; method: string; asset: string; network: string; decimals: number; externalId: string | null; quotedAtoms: string | null; rate: bigint | null; payTo: string; memo: string; checkoutUrl: string; state: "open" | "seen" | "partly_paid" | "paid" | "expired" | "cancelled" | "closed"; cancelledAt: Date | null; attention: string | null; faults: string[]; handled: string[]; ruleMicro: bigint; refundedUsdMicro: bigint; receiptNumber: string | null; createdBy: string; createdAt: Date; quietBefore: Date | null; quotedUntil: Date; watchedUntil: Date; nextLookAt: Date | null; lookedAt: Date | null; failedLooks: number; hookAt: Date | null; pageOpenUntil: Date | null; version: bigint; readAt: Date; grantedMicro: bigint; takenBackMicro: bigint; events: string[] };
/**
 * Reads orders, in any order, with what was granted for each and what refunds took back, and the
 * events that are stored of it, each as its kind and what it is of.
 */
export const readOrders: Many<{ orderIds: readonly string[] }, ReadOrdersRow> = many(
  "payments/read-orders",
  `-- payments/read-orders
select
  order_id, account_id, "family", idempotency_key, kind, usd_micro, processor, method, asset,
  network, decimals, external_id, quoted_atoms, rate, pay_to, memo, checkout_url, state,
  cancelled_at, attention, faults, handled, rule_micro, refunded_usd_micro, receipt_number,
  created_by, created_at, quiet_before, quoted_until, watched_until, next_look_at, looked_at,
  failed_looks, hook_at, page_open_until, version, now() as read_at,
  (select coalesce(sum(g.micro), 0)::bigint from payment_grants g where g.order_id = o.order_id)
    as granted_micro,
  (select coalesce(sum(r.micro), 0)::bigint from payment_refunds r
   where r.order_id = o.order_id and r.state not in ('refused', 'cancelled'))
    as taken_back_micro,
  array(select e.kind || ':' || e.subject from payment_events e where e.order_id = o.order_id)
    as events
from payment_orders o
where order_id = any($1::text[])`,
  (p) => [p.orderIds],
  (v) => ({ orderId: v[0], accountId: v[1], family: v[2], idempotencyKey: v[3], kind: v[4], usdMicro: v[5], processor: v[6], method: v[7], asset: v[8], network: v[9], decimals: v[10], externalId: v[11], quotedAtoms: v[12], rate: v[13], payTo: v[14], memo: v[15], checkoutUrl: v[16], state: v[17], cancelledAt: v[18], attention: v[19], faults: v[20], handled: v[21], ruleMicro: v[22], refundedUsdMicro: v[23], receiptNumber: v[24], createdBy: v[25], createdAt: v[26], quietBefore: v[27], quotedUntil: v[28], watchedUntil: v[29], nextLookAt: v[30], lookedAt: v[31], failedLooks: v[32], hookAt: v[33], pageOpenUntil: v[34], version: v[35], readAt: v[36], grantedMicro: v[37], takenBackMicro: v[38], events: v[39] }) as never,
  "externalId quotedAtoms rate cancelledAt attention receiptNumber quietBefore nextLookAt lookedAt hookAt pageOpenUntil",
  5000,
);

export type FindOrderByKeyRow = { orderId: string };
/**
 * Finds the order that an account made with an idempotency key.
 */
export const findOrderByKey: Optional<{ accountId: string; idempotencyKey: string }, FindOrderByKeyRow> = optional(
  "payments/find-order-by-key",
  `-- payments/find-order-by-key
select order_id from payment_orders
where account_id = $1 and idempotency_key = $2`,
  (p) => [p.accountId, p.idempotencyKey],
  (v) => ({ orderId: v[0] }) as never,
  "",
  5000,
);

export type FindPaidOrderRow = { orderId: string };
/**
 * Finds the first order of an account and pool of which at least so many credits are left: granted
 * for money, and not taken back by a refund that has begun.
 */
export const findPaidOrder: Optional<{ accountId: string; family: "v1" | "v2"; micro: string | bigint }, FindPaidOrderRow> = optional(
  "payments/find-paid-order",
  `-- payments/find-paid-order
select o.order_id
from payment_orders o
where o.account_id = $1 and o."family" = $2
  and (select coalesce(sum(g.micro), 0) from payment_grants g where g.order_id = o.order_id)
    - (select coalesce(sum(r.micro), 0) from payment_refunds r
       where r.order_id = o.order_id and r.state not in ('refused', 'cancelled')) >= $3
order by o.order_id
limit 1`,
  (p) => [p.accountId, p.family, p.micro],
  (v) => ({ orderId: v[0] }) as never,
  "",
  5000,
);

export type ReadVersionsRow = { orderId: string; version: bigint };
/**
 * Reads the versions of orders that somebody watches.
 */
export const readVersions: Many<{ orderIds: readonly string[] }, ReadVersionsRow> = many(
  "payments/read-versions",
  `-- payments/read-versions
select order_id, version from payment_orders where order_id = any($1::text[])`,
  (p) => [p.orderIds],
  (v) => ({ orderId: v[0], version: v[1] }) as never,
  "",
  5000,
);

export type HasWorkRow = { hasWork: boolean };
/**
 * True if `TakeWork` would find something, or lacks only a slot. Asked each second, since it takes
 * a tenth of the time.
 */
export const hasWork: One<{ processors: readonly string[]; withUnposted: boolean }, HasWorkRow> = one(
  "payments/has-work",
  `-- payments/has-work
select exists (
    select from payment_orders
    where processor = any($1::text[]) and next_look_at <= now()
      and (lease_until is null or lease_until < now())
  ) or $2::boolean and (
    exists (select from payment_grants where transfer_id is null)
    or exists (select from payment_refunds where state in ('asked', 'cancelling'))
    or exists (select from promotion_uses where transfer_id is null)
  ) as has_work`,
  (p) => [p.processors, p.withUnposted],
  (v) => ({ hasWork: v[0] }) as never,
  "",
  5000,
);

export type IsAwaitedRow = { order: boolean; payment: boolean };
/**
 * Tells what is awaited on a chain: open orders of a coin, and payments in no block.
 */
export const isAwaited: One<{ processor: string; chain: string; asset: string }, IsAwaitedRow> = one(
  "payments/is-awaited",
  `-- payments/is-awaited
select exists (
  select from payment_orders
  where processor = $1 and network = $2 and asset = $3 and external_id is not null
    and state in ('open', 'seen') and quoted_until > now() - interval '15 minutes'
) as order, exists (
  select from chain_payments
  where processor = $1 and chain = $2 and height is null and state <> 'lost'
) as payment`,
  (p) => [p.processor, p.chain, p.asset],
  (v) => ({ order: v[0], payment: v[1] }) as never,
  "",
  5000,
);

export type CountOrdersRow = { open: number; made: number; firstAt: Date | null; hasPaid: boolean };
/**
 * Counts the orders that an account has open, and those of the last hour with the first of them;
 * and says if money has ever arrived for one of its orders.
 */
export const countOrders: One<{ accountId: string }, CountOrdersRow> = one(
  "payments/count-orders",
  `-- payments/count-orders
select
  count(*) filter (
    where state in ('open', 'seen') and (state = 'seen' or quoted_until > now())
  )::integer as open,
  count(*) filter (where created_at > now() - interval '1 hour')::integer as made,
  min(created_at) filter (where created_at > now() - interval '1 hour') as first_at,
  exists (
    select from payment_grants g
    join payment_orders paid on paid.order_id = g.order_id
    where paid.account_id = $1 and g.micro > 0
  ) as has_paid
from payment_orders
where account_id = $1 and kind = 'pack'`,
  (p) => [p.accountId],
  (v) => ({ open: v[0], made: v[1], firstAt: v[2], hasPaid: v[3] }) as never,
  "firstAt",
  5000,
);

export type CountWaitingRow = { accountId: string; orders: number };
/**
 * Counts the orders that wait for a person, by account.
 */
export const countWaiting: Many<{ rows: bigint | number }, CountWaitingRow> = many(
  "payments/count-waiting",
  `-- payments/count-waiting
select account_id, count(*)::integer as orders
from payment_orders
where attention is not null and external_id is not null
group by account_id
order by account_id desc
limit $1`,
  (p) => [p.rows],
  (v) => ({ accountId: v[0], orders: v[1] }) as never,
  "",
  5000,
);

export type ListUndecidedRow = { orderId: string };
/**
 * Lists the orders of all accounts that wait for a person, oldest first.
 * `after`: the last one of the page before
 */
export const listUndecided: Many<{ after: string | null; rows: bigint | number }, ListUndecidedRow> = many(
  "payments/list-undecided",
  `-- payments/list-undecided
select order_id from payment_orders
where attention is not null and external_id is not null
  and ($1::text is null or order_id > $1)
order by order_id
limit $2`,
  (p) => [p.after, p.rows],
  (v) => ({ orderId: v[0] }) as never,
  "",
  5000,
);

export type FindOrdersRow = { orderId: string; buyerName: string; buyerTaxId: string; transactions: string[] | null };
/**
 * Finds the orders that their processor has opened and that match a filter, newest first, with
 * their buyers and the transactions that paid them. `ReadOrders` has the rest.
 * `accountId`: null: of all accounts
 * `states`: null: in any
 * `processor`: null: of any
 * `asset`: null: any
 * `to`: exclusive; null: up to now
 * `leastUsdMicro`: of the pack
 * `after`: the last one of the page before
 * `first`: an id below those of the range
 * `last`: an id above those of the range
 */
export const findOrders: Many<{ accountId: string | null; states: readonly string[] | null; needsAttention: boolean; processor: string | null; asset: string | null; from: Date | string; to: Date | string | null; leastUsdMicro: bigint | number; first: string; last: string; after: string | null; rows: bigint | number }, FindOrdersRow> = many(
  "payments/find-orders",
  `-- payments/find-orders
select order_id, buyer_name, buyer_tax_id,
  (select array_agg(t.tx order by t.tx)
   from payment_deposits d
   join payment_transactions t on t.processor = d.processor and t.external_id = d.external_id
   where d.order_id = o.order_id) as transactions
from payment_orders o
where ($1::text is null or account_id = $1)
  and ($2::text[] is null or state = any($2::text[]))
  and (not $3::boolean or attention is not null)
  and ($4::text is null or processor = $4)
  and ($5::text is null or asset = $5)
  and created_at >= $6 and ($7::timestamptz is null or created_at < $7)
  and usd_micro >= $8
  and order_id > $9 and order_id < $10 and ($11::text is null or order_id < $11)
  and external_id is not null
order by order_id desc
limit $12`,
  (p) => [p.accountId, p.states, p.needsAttention, p.processor, p.asset, p.from, p.to, p.leastUsdMicro, p.first, p.last, p.after, p.rows],
  (v) => ({ orderId: v[0], buyerName: v[1], buyerTaxId: v[2], transactions: v[3] }) as never,
  "transactions",
  5000,
);

export type SumOrdersRow = { orders: bigint; orderedUsdMicro: bigint; refundedUsdMicro: bigint; grantedMicro: bigint };
/**
 * Sums the orders that match a filter, as `FindOrders` finds them.
 * `accountId`: null: of all accounts
 * `states`: null: in any
 * `processor`: null: of any
 * `asset`: null: any
 * `to`: exclusive; null: up to now
 * `leastUsdMicro`: of the pack
 * `first`: an id below those of the range
 * `last`: an id above those of the range
 */
export const sumOrders: One<{ accountId: string | null; states: readonly string[] | null; needsAttention: boolean; processor: string | null; asset: string | null; from: Date | string; to: Date | string | null; leastUsdMicro: bigint | number; first: string; last: string }, SumOrdersRow> = one(
  "payments/sum-orders",
  `-- payments/sum-orders
select count(*) as orders, coalesce(sum(usd_micro), 0)::bigint as ordered_usd_micro,
  coalesce(sum(refunded_usd_micro), 0)::bigint as refunded_usd_micro,
  coalesce(sum(
    (select coalesce(sum(g.micro), 0) from payment_grants g where g.order_id = o.order_id)
    - (select coalesce(sum(r.micro), 0) from payment_refunds r
       where r.order_id = o.order_id and r.state not in ('refused', 'cancelled'))
  ), 0)::bigint as granted_micro
from payment_orders o
where ($1::text is null or account_id = $1)
  and ($2::text[] is null or state = any($2::text[]))
  and (not $3::boolean or attention is not null)
  and ($4::text is null or processor = $4)
  and ($5::text is null or asset = $5)
  and created_at >= $6 and ($7::timestamptz is null or created_at < $7)
  and usd_micro >= $8
  and order_id > $9 and order_id < $10
  and external_id is not null`,
  (p) => [p.accountId, p.states, p.needsAttention, p.processor, p.asset, p.from, p.to, p.leastUsdMicro, p.first, p.last],
  (v) => ({ orders: v[0], orderedUsdMicro: v[1], refundedUsdMicro: v[2], grantedMicro: v[3] }) as never,
  "",
  5000,
);

export type ListOpenOthersRow = { orderId: string };
/**
 * Lists the open orders of an account and pool on some networks, but for one.
 */
export const listOpenOthers: Many<{ processor: string; accountId: string; family: "v1" | "v2"; networks: readonly string[]; orderId: string }, ListOpenOthersRow> = many(
  "payments/list-open-others",
  `-- payments/list-open-others
select order_id from payment_orders
where processor = $1 and account_id = $2 and "family" = $3
  and network = any($4::text[])
  and order_id <> $5 and state = 'open' and external_id is not null`,
  (p) => [p.processor, p.accountId, p.family, p.networks, p.orderId],
  (v) => ({ orderId: v[0] }) as never,
  "",
  5000,
);

export type LockOrderRow = { orderId: string };
/**
 * Locks an order until the end of the transaction. Read it with the next statement: what this one
 * waited for is not in its own snapshot.
 */
export const lockOrder: Optional<{ orderId: string }, LockOrderRow> = optional(
  "payments/lock-order",
  `-- payments/lock-order
select order_id from payment_orders where order_id = $1 for update`,
  (p) => [p.orderId],
  (v) => ({ orderId: v[0] }) as never,
  "",
  5000,
);

/**
 * Takes the right to let the processor open an order. Changes no row: it is open, or somebody else
 * has the right.
 */
export const leaseOpening: Run<{ leaseMs: number; orderId: string }> = run(
  "payments/lease-opening",
  `-- payments/lease-opening
update payment_orders
set lease_until = now() + $1::integer * interval '1 millisecond'
where order_id = $2 and external_id is null and (lease_until is null or lease_until < now())`,
  (p) => [p.leaseMs, p.orderId],
  5000,
);

/**
 * Stores the quote of a processor, which begins the watching. Changes no row: the order has one.
 * `rate`: micro-dollars of one coin
 */
export const putQuote: Run<{ externalId: string; atoms: string | bigint; rate: bigint | number; payTo: string; memo: string; checkoutUrl: string; quotedForMs: bigint | number; watchedForMs: bigint | number; firstLookMs: bigint | number; orderId: string }> = run(
  "payments/put-quote",
  `-- payments/put-quote
update payment_orders
set external_id = $1, quoted_atoms = $2, rate = $3, pay_to = $4,
  memo = $5, checkout_url = $6,
  quoted_until = now() + $7::bigint * interval '1 millisecond',
  watched_until = now() + $8::bigint * interval '1 millisecond',
  next_look_at = now() + $9::bigint * interval '1 millisecond',
  lease_until = null, version = version + 1
where order_id = $10 and external_id is null`,
  (p) => [p.externalId, p.atoms, p.rate, p.payTo, p.memo, p.checkoutUrl, p.quotedForMs, p.watchedForMs, p.firstLookMs, p.orderId],
  5000,
);

/**
 * Gives back the right to open an order, which from now on counts as no open one.
 */
export const failOpening: Run<{ orderId: string }> = run(
  "payments/fail-opening",
  `-- payments/fail-opening
update payment_orders
set lease_until = null, quoted_until = now(), watched_until = now()
where order_id = $1 and external_id is null`,
  (p) => [p.orderId],
  5000,
);

export type TakeWorkRow = { work: "look" | "post" | "bonus"; orderId: string; processor: string; externalId: string; startedAt: Date; hook: string };
/**
 * Leases the orders that are to be looked at now: those of accounts without a look in two seconds
 * first; of these, those with a webhook, then those with an open page, then the others. At most
 * one look a second for each slot of a processor, over all nodes. The highest slot is kept for
 * webhooks. Returns also, if asked for, the orders with grants or refunds without a transfer, and
 * the uses of promotions without one: the code as `order_id`, and the account as `external_id`.
 */
export const takeWork: Many<{ processors: readonly string[]; slots: bigint | number; leaseMs: number; withUnposted: boolean }, TakeWorkRow> = many(
  "payments/take-work",
  `-- payments/take-work
with due as (
  select o.order_id, o.processor, o.account_id,
    row_number() over (
      partition by o.processor
      order by o.is_recent, o.hook_at, o.page_open_until <= now() or o.page_open_until is null,
        o.next_look_at
    ) as place,
    count(o.hook_at) over (partition by o.processor) as hooks
  from unnest($1::text[]) as p (processor)
  cross join lateral (
    select order_id, processor, account_id, hook_at, page_open_until, next_look_at,
      account_id in (
        select s.account_id from payment_look_slots s
        where s.processor = p.processor and s.account_id is not null
          and s.used_at > now() - interval '2 seconds'
      ) as is_recent
    from payment_orders
    where processor = p.processor and next_look_at <= now()
      and (lease_until is null or lease_until < now())
    order by is_recent, hook_at, page_open_until <= now() or page_open_until is null, next_look_at
    limit $2
    for update skip locked
  ) o
), free as (
  select s.processor, s.slot,
    row_number() over (partition by s.processor order by s.slot desc) as place,
    max(s.slot) over (partition by s.processor) as highest
  from (
    select processor, slot
    from payment_look_slots
    where processor = any($1) and slot <= $2 and used_at <= now() - interval '1 second'
      and exists (select from due)
    for update skip locked
  ) s
), chosen as (
  select due.order_id, due.account_id, free.processor, free.slot
  from due
  join free on free.processor = due.processor and free.place = due.place
    + case when due.hooks = 0 and free.highest = $2 then 1 else 0 end
), used as (
  update payment_look_slots s
  set used_at = now(), account_id = c.account_id
  from chosen c
  where s.processor = c.processor and s.slot = c.slot
), leased as (
  update payment_orders o
  set lease_until = now() + $3::integer * interval '1 millisecond'
  from chosen c
  where o.order_id = c.order_id
  returning o.order_id, o.processor, o.external_id, coalesce(o.hook_at::text, '') as hook
)
select 'look' as work, order_id as order_id, processor as processor,
  external_id as external_id, now() as started_at, hook as hook
from leased
union all
select 'post', order_id, '', '', now(), ''
from (
  select order_id from payment_grants where $4::boolean and transfer_id is null
  union
  select order_id from payment_refunds where $4 and state in ('asked', 'cancelling')
  limit 100
) unposted
union all
(
  select 'bonus', code_id, '', account_id, now(), ''
  from promotion_uses
  where $4 and transfer_id is null
  limit 100
)`,
  (p) => [p.processors, p.slots, p.leaseMs, p.withUnposted],
  (v) => ({ work: v[0], orderId: v[1], processor: v[2], externalId: v[3], startedAt: v[4], hook: v[5] }) as never,
  "",
  5000,
);

/**
 * Stores what was decided about an order. The caller has locked it.
 * `attention`: null: no person has to look
 * `isLook`: true: a look has ended; false: a person changed something
 * `hook`: what hook_at was when the look that was answered began; null: none was answered
 * `lookedAt`: the moment that its answer is true of
 * `nextLookMs`: null: the order is watched no more
 */
export const updateOrder: Run<{ state: "open" | "seen" | "partly_paid" | "paid" | "expired" | "cancelled" | "closed"; attention: string | null; faults: readonly string[]; ruleMicro: bigint | number; isLook: boolean; lookedAt: Date | string | null; failedLooks: number; hook: string | null; nextLookMs: bigint | number | null; orderId: string }> = run(
  "payments/update-order",
  `-- payments/update-order
update payment_orders
set state = $1, attention = $2, faults = $3, rule_micro = $4,
  lease_until = case when not $5::boolean then lease_until end,
  looked_at = greatest(looked_at, $6::timestamptz), failed_looks = $7,
  -- A webhook that came during the look asks for another one.
  hook_at = case when coalesce(hook_at::text, '') is distinct from $8::text then hook_at end,
  next_look_at = case
    when coalesce(hook_at::text, '') <> $8 then now()
    when $9::bigint is null then null
    when $5 then now() + $9 * interval '1 millisecond'
    else least(next_look_at, now() + $9 * interval '1 millisecond')
  end,
  version = version + 1
where order_id = $10`,
  (p) => [p.state, p.attention, p.faults, p.ruleMicro, p.isLook, p.lookedAt, p.failedLooks, p.hook, p.nextLookMs, p.orderId],
  5000,
);

/**
 * Cancels an order. The caller has locked it.
 */
export const cancelOrder: Run<{ orderId: string }> = run(
  "payments/cancel-order",
  `-- payments/cancel-order
update payment_orders set cancelled_at = now() where order_id = $1`,
  (p) => [p.orderId],
  5000,
);

/**
 * Lets the quote of an order stand again. The caller has locked it.
 */
export const reopenOrder: Run<{ quotedForMs: number; orderId: string }> = run(
  "payments/reopen-order",
  `-- payments/reopen-order
update payment_orders
set cancelled_at = null,
  quoted_until = now() + $1::integer * interval '1 millisecond',
  watched_until = greatest(watched_until, now() + interval '1 day')
where order_id = $2`,
  (p) => [p.quotedForMs, p.orderId],
  5000,
);

/**
 * Notes the number of the receipt with its order.
 */
export const setReceiptNumber: Run<{ number: string; orderId: string }> = run(
  "payments/set-receipt-number",
  `-- payments/set-receipt-number
update payment_orders set receipt_number = $1
where order_id = $2 and receipt_number is null`,
  (p) => [p.number, p.orderId],
  5000,
);

/**
 * Records that a person has dealt with facts of an order. The caller has locked it.
 */
export const handleFacts: Run<{ facts: readonly string[]; orderId: string }> = run(
  "payments/handle-facts",
  `-- payments/handle-facts
update payment_orders
set handled = array(select distinct unnest(handled || $1::text[]) order by 1)
where order_id = $2`,
  (p) => [p.facts, p.orderId],
  5000,
);

/**
 * Leaves as dealt with only what was decided: a refund that was given up dealt with nothing. The
 * caller has locked the order.
 */
export const restoreFacts: Run<{ orderId: string }> = run(
  "payments/restore-facts",
  `-- payments/restore-facts
update payment_orders
set handled = array(
  select distinct fact
  from payment_decisions d
  cross join lateral unnest(d.facts) as fact
  where d.order_id = $1
  order by 1
)
where order_id = $1`,
  (p) => [p.orderId],
  5000,
);

/**
 * Records that somebody watches an order, so that it is looked at more often.
 */
export const openPage: Run<{ openMs: number; paceMs: number; orderId: string }> = run(
  "payments/open-page",
  `-- payments/open-page
update payment_orders
set page_open_until = now() + $1::integer * interval '1 millisecond',
  next_look_at = least(next_look_at,
    greatest(now(), looked_at + $2::integer * interval '1 millisecond'))
where order_id = $3 and next_look_at is not null and failed_looks = 0`,
  (p) => [p.openMs, p.paceMs, p.orderId],
  5000,
);

/**
 * Asks for a look at an order, at once. Changes no row: the processor has made no such order.
 */
export const hookOrder: Run<{ processor: string; externalId: string }> = run(
  "payments/hook-order",
  `-- payments/hook-order
update payment_orders
set hook_at = now(), next_look_at = now()
where processor = $1 and external_id = $2`,
  (p) => [p.processor, p.externalId],
  5000,
);

export type ListOpenedRow = { orderId: string; externalId: string; accountId: string; payTo: string };
/**
 * Lists the orders that a processor has opened under some of its ids.
 */
export const listOpened: Many<{ processor: string; externalIds: readonly string[] }, ListOpenedRow> = many(
  "payments/list-opened",
  `-- payments/list-opened
select order_id, external_id as external_id, account_id, pay_to
from payment_orders
where processor = $1 and external_id = any($2::text[])`,
  (p) => [p.processor, p.externalIds],
  (v) => ({ orderId: v[0], externalId: v[1], accountId: v[2], payTo: v[3] }) as never,
  "",
  5000,
);

/**
 * Asks for a look at orders, at once. Changes no row of an order that is closed, or is watched no
 * more: what it waited for has come, or a person has decided.
 */
export const lookAgain: Run<{ orderIds: readonly string[] }> = run(
  "payments/look-again",
  `-- payments/look-again
update payment_orders
set hook_at = now(), next_look_at = now()
where order_id = any($1::text[]) and state <> 'closed' and next_look_at is not null`,
  (p) => [p.orderIds],
  5000,
);

/**
 * Asks for a look at the orders of payments that changed.
 */
export const hookChanged: Run<{ processor: string; externalIds: readonly string[] }> = run(
  "payments/hook-changed",
  `-- payments/hook-changed
update payment_orders
set hook_at = now(), next_look_at = now()
where order_id in (
  select order_id from chain_payments
  where processor = $1 and external_id = any($2::text[])
)`,
  (p) => [p.processor, p.externalIds],
  5000,
);

/**
 * Marks the orders of Ether that were open when their address was emptied.
 */
export const markSwept: Run<{ address: string; processor: string; chain: string; native: string; to: Date | string; from: Date | string }> = run(
  "payments/mark-swept",
  `-- payments/mark-swept
update payment_orders o
set faults = array(select distinct unnest(o.faults || 'swept'::text) order by 1),
  hook_at = now(), next_look_at = now()
from deposit_addresses a
where a.address = $1 and a.account_id = o.account_id and a."family" = o."family"
  and o.processor = $2 and o.network = $3 and o.asset = $4
  and o.external_id is not null
  and o.created_at - interval '10 minutes' <= $5 and o.quoted_until >= $6`,
  (p) => [p.address, p.processor, p.chain, p.native, p.to, p.from],
  5000,
);

// promotions.sql

export type InsertPromotionRow = { codeId: string; name: string; family: "v1" | "v2"; bonusMicro: bigint; endsAt: Date | null; most: number | null; used: number; needsPurchase: boolean; createdBy: string; createdAt: Date; stoppedAt: Date | null };
/**
 * Stores a promotion. No row: another one has this code.
 * `endsAt`: null: never
 * `most`: null: any number of uses
 */
export const insertPromotion: Optional<{ codeId: string; codeSha256: Buffer; name: string; family: "v1" | "v2"; bonusMicro: bigint | number; endsAt: Date | string | null; most: number | null; needsPurchase: boolean; createdBy: string }, InsertPromotionRow> = optional(
  "payments/insert-promotion",
  `-- payments/insert-promotion
insert into promotions (code_id, code_sha256, name, "family", bonus_micro, ends_at, most,
  needs_purchase, created_by)
values ($1, $2, $3, $4, $5, $6, $7,
  $8, $9)
on conflict (code_sha256) do nothing
returning code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at`,
  (p) => [p.codeId, p.codeSha256, p.name, p.family, p.bonusMicro, p.endsAt, p.most, p.needsPurchase, p.createdBy],
  (v) => ({ codeId: v[0], name: v[1], family: v[2], bonusMicro: v[3], endsAt: v[4], most: v[5], used: v[6], needsPurchase: v[7], createdBy: v[8], createdAt: v[9], stoppedAt: v[10] }) as never,
  "endsAt most stoppedAt",
  5000,
);

/**
 * Stores the use of a code by an account. Changes no row: the account has used it.
 * `orderId`: the purchase that the code needed
 */
export const insertPromotionUse: Run<{ codeId: string; accountId: string; orderId: string | null }> = run(
  "payments/insert-promotion-use",
  `-- payments/insert-promotion-use
insert into promotion_uses (code_id, account_id, order_id, used_at)
values ($1, $2, $3, now())
on conflict (code_id, account_id) do nothing`,
  (p) => [p.codeId, p.accountId, p.orderId],
  5000,
);

export type LockRedeemerRow = { accountId: string };
/**
 * Locks an account until the end of the transaction: its codes are redeemed one by one.
 */
export const lockRedeemer: Optional<{ accountId: string }, LockRedeemerRow> = optional(
  "payments/lock-redeemer",
  `-- payments/lock-redeemer
select account_id from accounts where account_id = $1 for no key update`,
  (p) => [p.accountId],
  (v) => ({ accountId: v[0] }) as never,
  "",
  5000,
);

export type FindPromotionRow = { codeId: string; name: string; family: "v1" | "v2"; bonusMicro: bigint; endsAt: Date | null; most: number | null; used: number; needsPurchase: boolean; createdBy: string; createdAt: Date; stoppedAt: Date | null };
/**
 * Finds the promotion of a code.
 */
export const findPromotion: Optional<{ codeSha256: Buffer }, FindPromotionRow> = optional(
  "payments/find-promotion",
  `-- payments/find-promotion
select code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at
from promotions
where code_sha256 = $1`,
  (p) => [p.codeSha256],
  (v) => ({ codeId: v[0], name: v[1], family: v[2], bonusMicro: v[3], endsAt: v[4], most: v[5], used: v[6], needsPurchase: v[7], createdBy: v[8], createdAt: v[9], stoppedAt: v[10] }) as never,
  "endsAt most stoppedAt",
  5000,
);

export type FindPromotionUseRow = { codeId: string; accountId: string; family: "v1" | "v2"; bonusMicro: bigint; transferId: string | null };
/**
 * Finds the use of a code by an account. Without a transfer: its bonus is not posted yet.
 */
export const findPromotionUse: Optional<{ codeId: string; accountId: string }, FindPromotionUseRow> = optional(
  "payments/find-promotion-use",
  `-- payments/find-promotion-use
select u.code_id, u.account_id, p."family", p.bonus_micro, u.transfer_id
from promotion_uses u
join promotions p on p.code_id = u.code_id
where u.code_id = $1 and u.account_id = $2`,
  (p) => [p.codeId, p.accountId],
  (v) => ({ codeId: v[0], accountId: v[1], family: v[2], bonusMicro: v[3], transferId: v[4] }) as never,
  "transferId",
  5000,
);

export type ReadBonusRow = { micro: bigint };
/**
 * Sums the bonuses of promotions that needed an order, unless a refund or a chargeback has taken
 * them.
 */
export const readBonus: One<{ orderId: string }, ReadBonusRow> = one(
  "payments/read-bonus",
  `-- payments/read-bonus
select coalesce(sum(p.bonus_micro), 0)::bigint as micro
from promotion_uses u
join promotions p on p.code_id = u.code_id
where u.order_id = $1 and u.refund_n is null
  and (
    select coalesce(sum(g.bonus_micro), 0) from payment_grants g where g.order_id = $1
  ) = 0`,
  (p) => [p.orderId],
  (v) => ({ micro: v[0] }) as never,
  "",
  5000,
);

export type ListPromotionsRow = { codeId: string; name: string; family: "v1" | "v2"; bonusMicro: bigint; endsAt: Date | null; most: number | null; used: number; needsPurchase: boolean; createdBy: string; createdAt: Date; stoppedAt: Date | null };
/**
 * Lists promotions, newest first.
 * `before`: the last one of the page before
 */
export const listPromotions: Many<{ before: string | null; rows: bigint | number }, ListPromotionsRow> = many(
  "payments/list-promotions",
  `-- payments/list-promotions
select code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at
from promotions
where $1::text is null or code_id < $1
order by code_id desc
limit $2`,
  (p) => [p.before, p.rows],
  (v) => ({ codeId: v[0], name: v[1], family: v[2], bonusMicro: v[3], endsAt: v[4], most: v[5], used: v[6], needsPurchase: v[7], createdBy: v[8], createdAt: v[9], stoppedAt: v[10] }) as never,
  "endsAt most stoppedAt",
  5000,
);

export type StopPromotionRow = { codeId: string; name: string; family: "v1" | "v2"; bonusMicro: bigint; endsAt: Date | null; most: number | null; used: number; needsPurchase: boolean; createdBy: string; createdAt: Date; stoppedAt: Date | null };
/**
 * Stops a promotion: its code is of no use from now on. A repeat changes nothing. No row: there is
 * no such promotion.
 */
export const stopPromotion: Optional<{ codeId: string }, StopPromotionRow> = optional(
  "payments/stop-promotion",
  `-- payments/stop-promotion
update promotions set stopped_at = coalesce(stopped_at, now())
where code_id = $1
returning code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at`,
  (p) => [p.codeId],
  (v) => ({ codeId: v[0], name: v[1], family: v[2], bonusMicro: v[3], endsAt: v[4], most: v[5], used: v[6], needsPurchase: v[7], createdBy: v[8], createdAt: v[9], stoppedAt: v[10] }) as never,
  "endsAt most stoppedAt",
  5000,
);

/**
 * Counts a use of a promotion. Changes no row: it has ended, was stopped, or is used up.
 * Simultaneous uses wait for each other here.
 */
export const countPromotionUse: Run<{ codeId: string }> = run(
  "payments/count-promotion-use",
  `-- payments/count-promotion-use
update promotions
set used = used + 1
where code_id = $1 and stopped_at is null and (ends_at is null or ends_at > now())
  and (most is null or used < most)`,
  (p) => [p.codeId],
  5000,
);

/**
 * Notes the transfer of a bonus.
 */
export const setPromotionTransfer: Run<{ transferId: string; codeId: string; accountId: string }> = run(
  "payments/set-promotion-transfer",
  `-- payments/set-promotion-transfer
update promotion_uses set transfer_id = $1
where code_id = $2 and account_id = $3 and transfer_id is null`,
  (p) => [p.transferId, p.codeId, p.accountId],
  5000,
);

/**
 * Notes that a refund takes the bonuses that needed its order. The caller has locked the order.
 */
export const takeBonus: Run<{ refundN: number; orderId: string }> = run(
  "payments/take-bonus",
  `-- payments/take-bonus
update promotion_uses set refund_n = $1 where order_id = $2 and refund_n is null`,
  (p) => [p.refundN, p.orderId],
  5000,
);

/**
 * Notes that a refund which ended without money gives its bonuses back. The caller has locked the
 * order.
 */
export const returnBonus: Run<{ orderId: string; refundN: number }> = run(
  "payments/return-bonus",
  `-- payments/return-bonus
update promotion_uses set refund_n = null where order_id = $1 and refund_n = $2`,
  (p) => [p.orderId, p.refundN],
  5000,
);

// rates.sql

/**
 * Keeps the rate of a minute. Changes no row: it is kept.
 * `rate`: micro-dollars of one coin
 */
export const putSample: Run<{ asset: string; at: Date | string; rate: bigint | number }> = run(
  "payments/put-sample",
  `-- payments/put-sample
insert into rate_samples (asset, at, rate) values ($1, $2, $3)
on conflict (asset, at) do nothing`,
  (p) => [p.asset, p.at, p.rate],
  5000,
);

export type FindSampleRow = { rate: bigint };
/**
 * Finds the rate nearest to a moment, of those between two others.
 */
export const findSample: Optional<{ asset: string; from: Date | string; to: Date | string; at: Date | string }, FindSampleRow> = optional(
  "payments/find-sample",
  `-- payments/find-sample
select rate
from rate_samples
where asset = $1 and at between $2 and $3
order by abs(extract(epoch from at - $4::timestamptz))
limit 1`,
  (p) => [p.asset, p.from, p.to, p.at],
  (v) => ({ rate: v[0] }) as never,
  "",
  5000,
);

export type FindLastSampleRow = { rate: bigint };
/**
 * Finds the newest rate, however old it is.
 */
export const findLastSample: Optional<{ asset: string }, FindLastSampleRow> = optional(
  "payments/find-last-sample",
  `-- payments/find-last-sample
select rate from rate_samples where asset = $1 order by at desc limit 1`,
  (p) => [p.asset],
  (v) => ({ rate: v[0] }) as never,
  "",
  5000,
);

/**
 * Removes the rates of more than 90 days ago.
 */
export const removeSamples: Run<undefined> = run(
  "payments/remove-samples",
  `-- payments/remove-samples
delete from rate_samples where at < now() - interval '90 days'`,
  () => [],
  5000,
);

// simulated.sql

/**
 * Pretends that something arrives for an order, or that more became of it. Changes no row: the
 * deposit belongs to another order.
 */
export const putSimulated: Run<{ depositId: string; orderId: string; asset: string; network: string; decimals: number; atoms: string | bigint; confirmations: number; isLost: boolean; firstSeenAt: Date | string }> = run(
  "payments/put-simulated",
  `-- payments/put-simulated
insert into simulated_payments as p
  (deposit_id, order_id, asset, network, decimals, atoms, confirmations, lost, first_seen_at)
values ($1, $2, $3, $4, $5, $6, $7, $8,
  $9)
on conflict (deposit_id) do update
set confirmations = excluded.confirmations, lost = excluded.lost
where p.order_id = excluded.order_id`,
  (p) => [p.depositId, p.orderId, p.asset, p.network, p.decimals, p.atoms, p.confirmations, p.isLost, p.firstSeenAt],
  5000,
);

/**
 * Lets the simulated processor report a fault of an order.
 */
export const putSimulatedFault: Run<{ orderId: string; fault: "marked" | "failed" }> = run(
  "payments/put-simulated-fault",
  `-- payments/put-simulated-fault
insert into simulated_faults (order_id, fault) values ($1, $2) on conflict do nothing`,
  (p) => [p.orderId, p.fault],
  5000,
);

export type ListSimulatedRow = { depositId: string; asset: string; network: string; decimals: number; atoms: string; confirmations: number; isLost: boolean; firstSeenAt: Date };
/**
 * Lists what was pretended to arrive for an order.
 */
export const listSimulated: Many<{ orderId: string }, ListSimulatedRow> = many(
  "payments/list-simulated",
  `-- payments/list-simulated
select deposit_id, asset, network, decimals, atoms, confirmations, lost as is_lost, first_seen_at
from simulated_payments
where order_id = $1
order by first_seen_at, deposit_id`,
  (p) => [p.orderId],
  (v) => ({ depositId: v[0], asset: v[1], network: v[2], decimals: v[3], atoms: v[4], confirmations: v[5], isLost: v[6], firstSeenAt: v[7] }) as never,
  "",
  5000,
);

export type ListSimulatedFaultsRow = { fault: "marked" | "failed" };
/**
 * Lists what the simulated processor was made to report of an order besides deposits.
 */
export const listSimulatedFaults: Many<{ orderId: string }, ListSimulatedFaultsRow> = many(
  "payments/list-simulated-faults",
  `-- payments/list-simulated-faults
select fault from simulated_faults where order_id = $1 order by fault`,
  (p) => [p.orderId],
  (v) => ({ fault: v[0] }) as never,
  "",
  5000,
);

/**
 * Ends the quote of a simulated order now, unless it has ended.
 * `withWatching`: true: the watching too
 */
export const endSimulated: Run<{ withWatching: boolean; orderId: string }> = run(
  "payments/end-simulated",
  `-- payments/end-simulated
update payment_orders
set quoted_until = least(quoted_until, now()),
  watched_until = case when $1::boolean then least(watched_until, now())
    else watched_until end,
  next_look_at = least(next_look_at, now() + interval '1 second')
where order_id = $2`,
  (p) => [p.withWatching, p.orderId],
  5000,
);

// sweeps.sql

/**
 * Marks addresses that the operator is about to empty.
 */
export const insertSweep: Run<{ sweepId: string; processor: string; network: string; addresses: readonly string[]; until: Date | string; createdBy: string }> = run(
  "payments/insert-sweep",
  `-- payments/insert-sweep
insert into sweeps (sweep_id, processor, network, addresses, until, created_by)
values ($1, $2, $3, $4, $5, $6)`,
  (p) => [p.sweepId, p.processor, p.network, p.addresses, p.until, p.createdBy],
  5000,
);

/**
 * Ends a sweep. Changes no row: it has ended.
 */
export const endSweep: Run<{ sweepId: string }> = run(
  "payments/end-sweep",
  `-- payments/end-sweep
update sweeps set ended_at = now() where sweep_id = $1 and ended_at is null`,
  (p) => [p.sweepId],
  5000,
);

export type ListSweepsRow = { sweepId: string; processor: string; network: string; addresses: string[]; until: Date; beganAt: Date; endedAt: Date | null; createdBy: string; isRead: boolean };
/**
 * Lists sweeps, the newest first, each with whether all its balances were read after its end.
 * `sweepId`: null: all
 * `before`: null: from the newest
 */
export const listSweeps: Many<{ sweepId: string | null; before: string | null; rows: bigint | number }, ListSweepsRow> = many(
  "payments/list-sweeps",
  `-- payments/list-sweeps
select sweep_id, processor, network, addresses, until, began_at, ended_at, created_by,
  least(until, ended_at) < now() and not exists (
    select from address_balances b
    where b.processor = s.processor and b.chain = s.network and b.address = any(s.addresses)
      and b.block_at <= least(s.until, s.ended_at)
  ) as is_read
from sweeps s
where ($1::text is null or sweep_id = $1)
  and ($2::text is null or sweep_id < $2)
order by sweep_id desc
limit $3`,
  (p) => [p.sweepId, p.before, p.rows],
  (v) => ({ sweepId: v[0], processor: v[1], network: v[2], addresses: v[3], until: v[4], beganAt: v[5], endedAt: v[6], createdBy: v[7], isRead: v[8] }) as never,
  "endedAt",
  5000,
);

export type FindSweepRow = { sweepId: string };
/**
 * Finds the sweep that an address was in at some time between two moments. Blocks can say a time
 * of some seconds ago.
 */
export const findSweep: Optional<{ processor: string; chain: string; address: string; to: Date | string; from: Date | string }, FindSweepRow> = optional(
  "payments/find-sweep",
  `-- payments/find-sweep
select sweep_id
from sweeps
where processor = $1 and network = $2 and $3 = any(addresses)
  and began_at - interval '15 seconds' <= $4 and least(until, ended_at) >= $5
order by sweep_id desc
limit 1`,
  (p) => [p.processor, p.chain, p.address, p.to, p.from],
  (v) => ({ sweepId: v[0] }) as never,
  "",
  5000,
);

/**
 * Notes what came to an address during a sweep.
 */
export const putSweepPayment: Run<{ processor: string; externalId: string; sweepId: string; address: string; asset: string; decimals: number; atoms: string | bigint; height: bigint | number; hash: string; at: Date | string }> = run(
  "payments/put-sweep-payment",
  `-- payments/put-sweep-payment
insert into sweep_payments
  (processor, external_id, sweep_id, address, asset, decimals, atoms, height, hash, at)
values
  ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
on conflict (processor, external_id) do nothing`,
  (p) => [p.processor, p.externalId, p.sweepId, p.address, p.asset, p.decimals, p.atoms, p.height, p.hash, p.at],
  5000,
);

export type ListSweepPaymentsRow = { sweepId: string; externalId: string; address: string; asset: string; decimals: number; atoms: string; height: bigint; hash: string; at: Date; grantedBy: string | null };
/**
 * Lists what came to addresses during some sweeps, oldest first.
 */
export const listSweepPayments: Many<{ sweepIds: readonly string[] }, ListSweepPaymentsRow> = many(
  "payments/list-sweep-payments",
  `-- payments/list-sweep-payments
select sweep_id, external_id, address, asset, decimals, atoms, height, hash, at, granted_by
from sweep_payments
where sweep_id = any($1::text[])
order by at, external_id`,
  (p) => [p.sweepIds],
  (v) => ({ sweepId: v[0], externalId: v[1], address: v[2], asset: v[3], decimals: v[4], atoms: v[5], height: v[6], hash: v[7], at: v[8], grantedBy: v[9] }) as never,
  "grantedBy",
  5000,
);

export type FindSweepPaymentRow = { sweepId: string; externalId: string; processor: string; network: string; address: string; asset: string; decimals: number; atoms: string; height: bigint; hash: string; at: Date; grantedBy: string | null };
/**
 * Finds what came during a sweep.
 */
export const findSweepPayment: Optional<{ sweepId: string; externalId: string }, FindSweepPaymentRow> = optional(
  "payments/find-sweep-payment",
  `-- payments/find-sweep-payment
select p.sweep_id, p.external_id, s.processor, s.network, p.address, p.asset, p.decimals, p.atoms,
  p.height, p.hash, p.at, p.granted_by
from sweep_payments p
join sweeps s on s.sweep_id = p.sweep_id
where p.sweep_id = $1 and p.external_id = $2`,
  (p) => [p.sweepId, p.externalId],
  (v) => ({ sweepId: v[0], externalId: v[1], processor: v[2], network: v[3], address: v[4], asset: v[5], decimals: v[6], atoms: v[7], height: v[8], hash: v[9], at: v[10], grantedBy: v[11] }) as never,
  "grantedBy",
  5000,
);

export type LockSweepPaymentRow = { externalId: string };
/**
 * Locks what came during a sweep until the end of the transaction. No row: somebody has granted it.
 */
export const lockSweepPayment: Optional<{ sweepId: string; externalId: string }, LockSweepPaymentRow> = optional(
  "payments/lock-sweep-payment",
  `-- payments/lock-sweep-payment
select external_id from sweep_payments
where sweep_id = $1 and external_id = $2 and granted_by is null
for update`,
  (p) => [p.sweepId, p.externalId],
  (v) => ({ externalId: v[0] }) as never,
  "",
  5000,
);

/**
 * Notes who granted what came during a sweep. The caller has locked it.
 */
export const grantSweepPayment: Run<{ grantedBy: string; sweepId: string; externalId: string }> = run(
  "payments/grant-sweep-payment",
  `-- payments/grant-sweep-payment
update sweep_payments
set granted_by = $1, granted_at = now()
where sweep_id = $2 and external_id = $3 and granted_by is null`,
  (p) => [p.grantedBy, p.sweepId, p.externalId],
  5000,
);

/**
 * Forgets what came to addresses above a height, which the chain left, and nobody granted.
 */
export const loseSweepPayments: Run<{ processor: string; chain: string; above: bigint | number }> = run(
  "payments/lose-sweep-payments",
  `-- payments/lose-sweep-payments
delete from sweep_payments p
using sweeps s
where s.sweep_id = p.sweep_id and s.processor = $1 and s.network = $2
  and p.height > $3 and p.granted_by is null`,
  (p) => [p.processor, p.chain, p.above],
  5000,
);
