// What the gateway knows of the chains that it reads: how far, which addresses are ours, and what
// arrived there.

import * as sql from "../../gen/sql/payments.ts";
import type { Runner } from "../postgres/statement.ts";

export type ChainId = { readonly processor: string; readonly chain: string };

export type BlockId = { readonly height: number; readonly hash: string };

/** What a chain says of one payment. Its id names its content. */
export type ChainPayment = {
  readonly externalId: string;
  readonly address: string;
  readonly asset: string;
  readonly decimals: number;
  readonly atoms: bigint;
  /** Undefined: it is in no block yet. */
  readonly block: BlockId | undefined;
  readonly seenAt: Date;
  /** The time of its block. */
  readonly blockAt: Date | undefined;
  /** Micro-dollars of one coin at its first sight. Undefined: unknown. */
  readonly marketRate: bigint | undefined;
  /** The outputs that it spends, where a chain has them. */
  readonly spends: readonly string[];
  /** Blocks that it needs, as far as is known now. */
  readonly needed: number;
  /** How many transactions it has, and the hashes of the largest. */
  readonly transactions: number;
  readonly hashes: readonly string[];
};

/** A payment in a block without an order. */
export type WaitingPayment = Readonly<InAtoms<sql.ListWaitingRow>>;

export type Balance = {
  readonly address: string;
  readonly atoms: bigint;
  readonly nonce: number;
  readonly height: number;
  readonly blockAt: Date;
};

/** A row with its amount of coins as a number. */
export type InAtoms<Row> = Omit<Row, "atoms"> & { readonly atoms: bigint };

/** `numeric` arrives as text. */
export function withAtoms<Row extends { atoms: string }>(row: Row): InAtoms<Row> {
  return { ...row, atoms: BigInt(row.atoms) };
}

/** Their external ids. */
export function idsOf(payments: readonly { readonly externalId: string }[]): string[] {
  return payments.map(({ externalId }) => externalId);
}

export function chainTables(db: Runner) {
  return {
    /** Undefined: the chain is not due, or somebody else reads it. */
    async leaseChain(id: ChainId, leaseMs: number) {
      const row = await db.run(sql.leaseChain, { ...id, leaseMs });
      if (!row) return undefined;
      const { height, hash, lease, chunkBlocks } = row;
      const isRead = height !== null && hash !== null;
      return { lease, chunkBlocks, cursor: isRead ? { height: Number(height), hash } : undefined };
    },
    /** Locks a chain until the end of the transaction. Throws if the lease has ended. */
    async lockChain(id: ChainId, lease: string): Promise<void> {
      if (!(await db.run(sql.lockChain, { ...id, lease })))
        throw new Error("another node reads this chain");
    },
    /** Newest first. */
    async listBlocks(id: ChainId): Promise<BlockId[]> {
      const rows = await db.run(sql.listBlocks, id);
      return rows.map(({ height, hash }) => ({ height: Number(height), hash }));
    },
    /** Undefined: no reading of the chain has ended. */
    async findReadChain(id: ChainId) {
      const { height = null, tip = null, readAt = null } = (await db.run(sql.findChain, id)) ?? {};
      if (height === null || tip === null) return undefined;
      return { height: Number(height), tip: Number(tip), readAt };
    },
    /** True: something became of it. */
    async putChainPayment(id: ChainId, payment: ChainPayment): Promise<boolean> {
      const { block, seenAt, blockAt = null, marketRate = null, ...rest } = payment;
      const { height = null, hash = null } = block ?? {};
      const stored = { ...id, ...rest, height, hash, firstSeenAt: seenAt, blockAt, marketRate };
      return (await db.run(sql.putChainPayment, stored)) > 0;
    },
    /** Those below a height: the awaited ones first, then the oldest. */
    async listBalances(
      id: ChainId,
      native: string,
      below: number,
      limit: number,
    ): Promise<Balance[]> {
      const rows = await db.run(sql.listBalances, { ...id, native, below, rows: limit });
      return rows.map((row) => ({
        ...withAtoms(row),
        nonce: Number(row.nonce),
        height: Number(row.height),
      }));
    },
  };
}
