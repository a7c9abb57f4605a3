// What the readers of chains have in common: how far they have read, what of all that arrived is a
// payment, and the way back to where a chain went another way.

import * as sql from "../../gen/sql/payments.ts";
import type { Log } from "../base/log.ts";
import { leastDepositUsd } from "../base/shown-figures.ts";
import { type BlockId, type ChainId, type ChainPayment, idsOf } from "./chain-tables.ts";
import { addAtoms } from "./coins.ts";
import { isStablecoin } from "./decide.ts";
import type { MarketRate } from "./processor.ts";
import type { PaymentsStore, PaymentsTables } from "./store.ts";

const microDollars = 1_000_000n;
const leastUsdMicro = BigInt(leastDepositUsd) * microDollars;
/** Transactions by which a payment can be found. */
const hashesMax = 50;
/** Blocks that are remembered. A chain that leaves more of them needs a person. */
const keptBlocks = 200;
/** Blocks that one transaction reads at most. */
export const chunkBlocksMax = 500;

/** One reading of a chain, by the node that has its lease. */
export type Reading = {
  readonly id: ChainId;
  /** The last block that is not read again. Undefined: nothing was read yet. */
  readonly cursor: BlockId | undefined;
  /** Blocks of the next chunk, at most. */
  readonly chunkBlocks: number;
  readonly signal: AbortSignal;
  /** True: no further chunk is to begin. */
  isOver(): boolean;
  /** Runs `work` in a transaction, with the chain locked. Throws if the lease has ended. */
  transaction<T>(work: (tables: PaymentsTables) => Promise<T>): Promise<T>;
};

/** The newest block, and whether all blocks up to it were read. */
export type ReadChain = { readonly tip: number; readonly isWhole: boolean };

/** A transaction, as a node knows it. */
export type FoundTransaction = {
  /** Undefined: it waits for a block. */
  readonly confirmations: number | undefined;
  /** True: it was included, and did nothing. */
  readonly isFailed: boolean;
  /** True: it calls a contract, which may have sent the chain's own coin: only balances show it. */
  readonly maySendMore: boolean;
  /** What it pays, as far as it is read: of listed assets, with single addresses. */
  readonly outputs: readonly {
    readonly address: string;
    readonly asset: string;
    readonly decimals: number;
    readonly atoms: bigint;
  }[];
};

export type Chain = {
  /** As people know the network. */
  readonly name: string;
  /** True: its own coin is found by the balances of addresses. */
  readonly hasBalances: boolean;
  /** Throws if the node does not answer as it should: what was read before stays. */
  read(reading: Reading): Promise<ReadChain>;
  /** Undefined: the node has no such transaction. */
  lookUp(hash: string, signal: AbortSignal): Promise<FoundTransaction | undefined>;
  /**
   * Blocks that payments need by what their account was paid within a day, in micro-dollars,
   * undefined: partly unknown. Absent: as many as was stored with each.
   */
  readonly blocksNeeded?: (usdMicro: bigint | undefined) => number;
};

export type ChainParts = {
  readonly store: PaymentsStore;
  readonly marketRate: MarketRate | undefined;
  readonly log: Log;
};

/** What one address got of one asset, in one block or one transaction. */
export type Arrival = {
  readonly externalId: string;
  readonly address: string;
  readonly asset: string;
  readonly decimals: number;
  readonly atoms: bigint;
  /** Undefined: it waits for one. */
  readonly block: BlockId | undefined;
  /** The first sight. */
  readonly at: Date;
  /** The time of its block. */
  readonly blockAt: Date | undefined;
  readonly spends: readonly string[];
  readonly needed: number;
  /** With their parts of the atoms. */
  readonly transactions: ReadonlyMap<string, bigint>;
};

/** What is worth less than a payment, in one block. */
type Dust = Arrival & { readonly block: BlockId };

/** What is to be stored of some arrivals. */
type Sorted = {
  readonly payments: readonly ChainPayment[];
  readonly dust: readonly Dust[];
  /** The payments that dust becomes. */
  readonly grown: readonly (ChainPayment & { readonly block: BlockId })[];
};

/** The id of what an address got of an asset in a block. */
export function idInBlock(chain: string, { hash }: BlockId, address: string, asset: string) {
  return `${chain}:${hash}:${address}:${asset}`;
}

/**
 * Tells payments from dust, by the rates of their time. `known`: the ids of stored payments, which
 * stay payments. `grown`: of those that dust became, so the arrival is its last piece. `isFinal`
 * false: their blocks are read again, so dust is left for then.
 */
export async function sortArrivals(
  { store, marketRate }: ChainParts,
  id: ChainId,
  arrivals: readonly Arrival[],
  of: { known: ReadonlySet<string>; grown?: ReadonlySet<string>; isFinal: boolean },
): Promise<Sorted> {
  const { known, grown = new Set(), isFinal } = of;
  const rateOf = async (asset: string, at: Date | "last") => await marketRate?.({ asset }, at);
  const bounds = new Map<string, bigint | undefined>();
  for (const { asset, at } of arrivals)
    if (!bounds.has(asset))
      bounds.set(
        asset,
        isStablecoin({ asset })
          ? microDollars
          : ((await rateOf(asset, at)) ?? (await rateOf(asset, "last"))),
      );
  /** By a rate of any age, since it only has to be small. */
  const isDust = ({ asset, decimals }: Arrival, atoms: bigint) => {
    const rate = bounds.get(asset);
    return rate !== undefined && (atoms * rate) / 10n ** BigInt(decimals) < leastUsdMicro;
  };
  const toPayment = async (arrival: Arrival): Promise<ChainPayment> => {
    const { at, transactions, ...rest } = arrival;
    const largest = [...transactions].toSorted(([, one], [, other]) => (one > other ? -1 : 1));
    const hashes = largest.slice(0, hashesMax).map(([hash]) => hash);
    const marketRate = await rateOf(arrival.asset, at);
    return { ...rest, seenAt: at, marketRate, transactions: transactions.size, hashes };
  };

  const payments: ChainPayment[] = [];
  /** By block, address and asset. */
  const dust = new Map<string, Dust & { readonly transactions: Map<string, bigint> }>();
  for (const arrival of arrivals) {
    const { block, address, asset, atoms, externalId } = arrival;
    const isPayment = known.has(externalId) || !isDust(arrival, atoms);
    if (isPayment && !grown.has(externalId)) payments.push(await toPayment(arrival));
    else if (isFinal && block) {
      const key = idInBlock(id.chain, block, address, asset);
      const before = dust.get(key);
      // Added to in place: one address can have thousands in one block.
      const transactions = before?.transactions ?? new Map<string, bigint>();
      for (const [hash, part] of arrival.transactions) transactions.set(hash, part);
      dust.set(key, {
        ...{ ...arrival, block, externalId: key, spends: [] },
        atoms: addAtoms(before?.atoms ?? 0n, atoms),
        transactions,
      });
    }
  }
  const pieces = [...dust.values()];
  return {
    payments,
    dust: pieces,
    grown: await growDust(store, id, pieces, { grown, isDust, toPayment }),
  };
}

/** The payments that small pieces become, with those that wait. */
async function growDust(
  store: PaymentsStore,
  id: ChainId,
  pieces: readonly Dust[],
  by: {
    grown: ReadonlySet<string>;
    isDust(arrival: Arrival, atoms: bigint): boolean;
    toPayment(arrival: Arrival): Promise<ChainPayment>;
  },
) {
  const grown: (ChainPayment & { block: BlockId })[] = [];
  if (pieces.length === 0) return grown;
  const keyOf = ({ address, asset }: { address: string; asset: string }) => `${address} ${asset}`;
  const below = Math.min(...pieces.map(({ block }) => block.height));
  const addresses = [...new Set(pieces.map(({ address }) => address))];
  const sums = await store.run(sql.sumDust, { ...id, addresses, below });
  const waiting = new Map(sums.map((one) => [keyOf(one), BigInt(one.atoms)]));
  const ordered = pieces.toSorted((one, other) => one.block.height - other.block.height);
  for (const piece of ordered) {
    const sum = addAtoms(waiting.get(keyOf(piece)) ?? 0n, piece.atoms);
    const isWhole = by.grown.has(piece.externalId) || !by.isDust(piece, sum);
    waiting.set(keyOf(piece), isWhole ? 0n : sum);
    if (!isWhole) continue;
    grown.push({ ...(await by.toPayment({ ...piece, atoms: sum })), block: piece.block });
  }
  return grown;
}

/** Stores them, and asks for a look at the orders of payments of which something became. */
export async function storeArrivals(
  tables: PaymentsTables,
  id: ChainId,
  { payments, dust, grown }: Sorted,
): Promise<void> {
  if (dust.length > 0)
    await tables.run(sql.putDust, {
      ...id,
      addresses: dust.map(({ address }) => address),
      assets: dust.map(({ asset }) => asset),
      heights: dust.map(({ block }) => block.height),
      decimals: dust.map(({ decimals }) => decimals),
      atoms: dust.map(({ atoms }) => atoms),
      sinces: dust.map(({ at }) => at),
    });
  const changed: string[] = [];
  for (const one of grown) {
    const { address, asset, block } = one;
    await tables.run(sql.takeDust, { ...id, address, asset, height: block.height });
  }
  for (const one of [...payments, ...grown])
    if (await tables.putChainPayment(id, one)) changed.push(one.externalId);
  await hookOrders(tables, id, changed);
}

/** Moves the cursor to the last of some blocks, which are remembered. The chain is locked. */
export async function moveChain(
  tables: PaymentsTables,
  id: ChainId,
  blocks: readonly BlockId[],
): Promise<void> {
  const heights = blocks.map(({ height }) => height);
  const hashes = blocks.map(({ hash }) => hash);
  await tables.run(sql.moveChain, { ...id, heights, hashes, kept: keptBlocks });
}

/**
 * The newest remembered block that the chain still has, when it has left the cursor. `hashAt`:
 * undefined for a block that the node does not have. Throws if none is left.
 */
export async function findCommon(
  store: PaymentsStore,
  { id, cursor }: Reading,
  tip: number,
  hashAt: (height: number) => Promise<string | undefined>,
): Promise<BlockId> {
  for (const block of await store.listBlocks(id)) {
    if (block.height > tip || (await hashAt(block.height)) !== block.hash) continue;
    // A node that is behind has the same chain, only less of it.
    if (cursor && tip < cursor.height && block.height === tip)
      throw new Error(`the node is behind: it has ${tip} blocks of ${cursor.height}`);
    return block;
  }
  throw new Error(`the node has another chain than the one that was read up to ${cursor?.height}`);
}

/**
 * Asks for a look at the orders of payments of which something became, in the transaction that says
 * so: an order that is watched no more would not be looked at by itself.
 */
export async function hookOrders(
  tables: PaymentsTables,
  { processor }: ChainId,
  externalIds: readonly string[],
): Promise<void> {
  if (externalIds.length > 0) await tables.run(sql.hookChanged, { processor, externalIds });
}

/** Goes back to a block that the chain still has. `orphan` returns the payments that it changes. */
export function goBack(
  { id, transaction }: Reading,
  common: BlockId,
  orphan: (tables: PaymentsTables) => Promise<readonly { readonly externalId: string }[]>,
): Promise<void> {
  return transaction(async (tables) => {
    const above = common.height;
    const changed = idsOf(await orphan(tables));
    await tables.run(sql.returnDust, { ...id, above });
    await tables.run(sql.dropBlocks, { ...id, above });
    await moveChain(tables, id, [common]);
    await hookOrders(tables, id, changed);
  });
}
