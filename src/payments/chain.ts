// What the readers of chains have in common: how far they have read, and the way back to where a
// chain went another way.

import * as sql from "../../gen/sql/payments.ts";
import type { Log } from "../base/log.ts";
import { type BlockId, type ChainId, idsOf } from "./chain-tables.ts";
import type { MarketRate } from "./processor.ts";
import type { PaymentsStore, PaymentsTables } from "./store.ts";

/** One reading of a chain, by the node that has its lease. */
export type Reading = {
  readonly id: ChainId;
  /** The last block that is not read again. Undefined: nothing was read yet. */
  readonly cursor: BlockId | undefined;
  readonly signal: AbortSignal;
  /** Runs `work` in a transaction, with the chain locked. Throws if the lease has ended. */
  transaction<T>(work: (tables: PaymentsTables) => Promise<T>): Promise<T>;
};

export type ReadChain = {
  /** The newest block. */
  readonly tip: number;
  /** The payments of which something became. */
  readonly changed: readonly string[];
  /** How many blocks a payment needs, and whether it has them. */
  confirm(payment: { readonly height: number; readonly usdMicro: bigint | undefined }): {
    readonly needed: number;
    readonly isSettled: boolean;
  };
};

export type Chain = {
  /** As people know the network. */
  readonly name: string;
  /** The coins whose rates are needed for what arrives without an order. */
  readonly quoted: readonly string[];
  /** Throws if the node does not answer as it should: what was read before stays. */
  read(reading: Reading): Promise<ReadChain>;
};

export type ChainParts = {
  readonly store: PaymentsStore;
  readonly marketRate: MarketRate | undefined;
  readonly log: Log;
};

/** Blocks that are remembered. A chain that leaves more of them needs a person. */
export const keptBlocks = 200;

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
 * so: an order that is watched no more would not be looked at by itself. Returns the payments.
 */
export async function hooked(
  tables: PaymentsTables,
  id: ChainId,
  changed: string[],
): Promise<string[]> {
  if (changed.length > 0)
    await tables.run(sql.hookChanged, { ...id, externalIds: changed, hasBlocks: false });
  return changed;
}

/** Goes back to a block that the chain still has. Returns the payments that are in no block now. */
export function goBack({ id, transaction }: Reading, common: BlockId): Promise<string[]> {
  return transaction(async (tables) => {
    const above = common.height;
    const lost = await tables.run(sql.loseNative, { ...id, above });
    const left = { ...id, from: above + 1, to: Number.MAX_SAFE_INTEGER, but: [] };
    const orphaned = await tables.run(sql.orphanPayments, left);
    await tables.run(sql.dropBlocks, { ...id, above });
    await tables.run(sql.moveChain, { ...id, ...common });
    return hooked(tables, id, idsOf([...lost, ...orphaned]));
  });
}
