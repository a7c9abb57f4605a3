// What the gateway knows of the chains that it reads: how far, which addresses are ours, and what
// arrived there.

import type { FamilyName } from "../base/families.ts";
import type { Statement } from "../postgres/postgres.ts";
import type { Asset, DepositState } from "./processor.ts";
import { type Query, timed } from "./query.ts";

const statements = {
  ensureChain: timed("ensure-chain"),
  leaseChain: timed("lease-chain"),
  lockChain: timed("lock-chain"),
  moveChain: timed("move-chain"),
  putBlock: timed("put-block"),
  listBlocks: timed("list-blocks"),
  dropBlocks: timed("drop-blocks"),
  endReading: timed("end-reading"),
  findChain: timed("find-chain"),
  takeIndex: timed("take-index"),
  insertAddress: timed("insert-address"),
  findAddress: timed("find-address"),
  ownAddresses: timed("own-addresses"),
  listAddresses: timed("list-addresses"),
  putChainPayment: timed("put-chain-payment"),
  orphanPayments: timed("orphan-payments"),
  listUnmined: timed("list-unmined"),
  markMissing: timed("mark-missing"),
  losePayments: timed("lose-payments"),
  listUnsettled: timed("list-unsettled"),
  confirmPayment: timed("confirm-payment"),
  assignPayments: timed("assign-payments"),
  listWaiting: timed("list-waiting"),
  insertDirect: timed("insert-direct"),
  putPaymentOrder: timed("put-payment-order"),
  hookChanged: timed("hook-changed"),
  listChainPayments: timed("list-chain-payments"),
  listOpenOthers: timed("list-open-others"),
  countAwaited: timed("count-awaited"),
  ensureBalances: timed("ensure-balances"),
  listBalances: timed("list-balances"),
  moveBalance: timed("move-balance"),
  findQuoted: timed("find-quoted"),
  loseNative: timed("lose-native"),
  markSwept: timed("mark-swept"),
};

export type ChainId = { readonly processor: string; readonly chain: string };

export type BlockId = { readonly height: number; readonly hash: string };

/** What a chain says of one payment. */
export type ChainPayment = {
  readonly externalId: string;
  readonly address: string;
  readonly asset: string;
  readonly decimals: number;
  readonly atoms: bigint;
  /** Undefined: it is in no block yet. */
  readonly block: BlockId | undefined;
  readonly seenAt: Date;
  /** Micro-dollars of one coin at its first sight. Undefined: unknown. */
  readonly marketRate: bigint | undefined;
  /** The outputs that it spends, where a chain has them. */
  readonly spends: readonly string[];
};

/** A payment of an order. */
export type OrderPayment = Asset & {
  readonly externalId: string;
  readonly atoms: bigint;
  readonly state: DepositState;
  readonly height: number | undefined;
  readonly marketRate: bigint | undefined;
  readonly needed: number;
  readonly firstSeenAt: Date;
};

/** A payment in a block without an order. */
export type WaitingPayment = {
  readonly externalId: string;
  readonly address: string;
  readonly asset: string;
  readonly decimals: number;
  readonly atoms: bigint;
  readonly marketRate: bigint | undefined;
  readonly firstSeenAt: Date;
  readonly accountId: string;
  readonly family: FamilyName;
};

export type Balance = {
  readonly address: string;
  readonly atoms: bigint;
  readonly nonce: number;
  readonly height: number;
  readonly blockAt: Date;
};

/** An order for what arrived without one. */
export type DirectOrder = Asset & {
  readonly orderId: string;
  readonly accountId: string;
  readonly family: FamilyName;
  readonly idempotencyKey: string;
  readonly usdMicro: bigint;
  readonly processor: string;
  readonly method: string;
  readonly externalId: string;
  readonly atoms: bigint;
  readonly rate: bigint;
  readonly address: string;
  readonly createdBy: string;
  readonly seller: { name: string; address: string; taxId: string };
  readonly buyer: { name: string; address: string; taxId: string };
  readonly quotedUntil: Date;
  readonly watchedForMs: number;
};

type ExternalIdRow = { external_id: string };
type BlockRow = { height: bigint; hash: string };

export function chainTables(query: Query) {
  const idsOf = async (one: Statement, values: readonly unknown[]) =>
    (await query<ExternalIdRow>(one, values)).map(({ external_id }) => external_id);
  const run = async (one: Statement, values: readonly unknown[]) => void (await query(one, values));

  return {
    // How far a chain was read.

    ensureChain: ({ processor, chain }: ChainId) => run(statements.ensureChain, [processor, chain]),
    /** Undefined: the chain is not due, or somebody else reads it. */
    async leaseChain({ processor, chain }: ChainId, leaseMs: number) {
      const [row] = await query<{ height: bigint | null; hash: string | null; lease: string }>(
        statements.leaseChain,
        [processor, chain, leaseMs],
      );
      return row && { lease: row.lease, cursor: toBlock(row.height, row.hash) };
    },
    /** Locks a chain until the end of the transaction. Throws if the lease has ended. */
    async lockChain({ processor, chain }: ChainId, lease: string): Promise<void> {
      if ((await query(statements.lockChain, [processor, chain, lease])).length === 0)
        throw new Error("another node reads this chain");
    },
    /** The chain is locked. */
    moveChain: ({ processor, chain }: ChainId, { height, hash }: BlockId) =>
      run(statements.moveChain, [processor, chain, height, hash]),
    putBlock: ({ processor, chain }: ChainId, { height, hash }: BlockId, kept: number) =>
      run(statements.putBlock, [processor, chain, height, hash, kept]),
    /** Newest first. */
    async listBlocks({ processor, chain }: ChainId): Promise<BlockId[]> {
      const rows = await query<BlockRow>(statements.listBlocks, [processor, chain]);
      return rows.map(({ height, hash }) => ({ height: Number(height), hash }));
    },
    dropBlocks: ({ processor, chain }: ChainId, above: number) =>
      run(statements.dropBlocks, [processor, chain, above]),
    /** `tip` undefined: the reading failed. */
    endReading: (
      { processor, chain }: ChainId,
      lease: string,
      tip: number | undefined,
      nextMs: number,
    ) => run(statements.endReading, [processor, chain, lease, tip ?? null, nextMs]),
    /** The newest block. Undefined: the chain was not read within the last two minutes. */
    async findTip({ processor, chain }: ChainId): Promise<number | undefined> {
      const [row] = await query<{ tip: bigint | null; fresh: boolean | null }>(
        statements.findChain,
        [processor, chain],
      );
      return row?.fresh && row.tip !== null ? Number(row.tip) : undefined;
    },

    // Addresses.

    /** In a transaction with `insertAddress`, so that no index is left out. */
    async takeIndex(keyId: string): Promise<number> {
      const [row] = await query<{ index: bigint }>(statements.takeIndex, [keyId]);
      return Number(row?.index);
    },
    /** False: the account has an address for this pool. */
    async insertAddress(of: {
      keyId: string;
      index: number;
      address: string;
      accountId: string;
      family: FamilyName;
    }): Promise<boolean> {
      const values = [of.keyId, of.index, of.address, of.accountId, of.family];
      return (await query(statements.insertAddress, values)).length > 0;
    },
    async findAddress(keyId: string, accountId: string, family: FamilyName) {
      const [row] = await query<{ address: string }>(statements.findAddress, [
        ...[keyId, accountId, family],
      ]);
      return row?.address;
    },
    async ownAddresses(addresses: readonly string[]): Promise<Set<string>> {
      const rows = await query<{ address: string }>(statements.ownAddresses, [addresses]);
      return new Set(rows.map(({ address }) => address));
    },
    /** Of EVM chains, in order. */
    async listAddresses(after: string, limit: number): Promise<string[]> {
      const rows = await query<{ address: string }>(statements.listAddresses, [after, limit]);
      return rows.map(({ address }) => address);
    },

    // Payments.

    /** True: something became of it. */
    async putChainPayment({ processor, chain }: ChainId, of: ChainPayment): Promise<boolean> {
      const values = [
        ...[processor, of.externalId, chain, of.address, of.asset, of.decimals, of.atoms],
        ...[of.block?.height ?? null, of.block?.hash ?? null, of.seenAt, of.marketRate ?? null],
        of.spends,
      ];
      return (await query(statements.putChainPayment, values)).length > 0;
    },
    /** Takes payments of these heights, but for some, out of their blocks. Returns their ids. */
    orphanPayments: (
      { processor, chain }: ChainId,
      { from, to }: { from: number; to: number },
      but: readonly string[],
    ) => idsOf(statements.orphanPayments, [processor, chain, from, to, but]),
    async listUnmined({ processor, chain }: ChainId) {
      const rows = await query<{ external_id: string; spends: string[] }>(statements.listUnmined, [
        processor,
        chain,
      ]);
      return rows.map(({ external_id, spends }) => ({ externalId: external_id, spends }));
    },
    markMissing: ({ processor, chain }: ChainId, waiting: readonly string[]) =>
      run(statements.markMissing, [processor, chain, waiting]),
    /** Gives up what was replaced, and what has been missing for so long. Returns their ids. */
    losePayments: ({ processor, chain }: ChainId, replaced: readonly string[], missingMs: number) =>
      idsOf(statements.losePayments, [processor, chain, replaced, missingMs]),
    /** `usdMicro`: what the account was paid on this chain within a day. Undefined: unknown. */
    async listUnsettled({ processor, chain }: ChainId) {
      const rows = await query<{ external_id: string; height: bigint; usd_micro: string | null }>(
        statements.listUnsettled,
        [processor, chain],
      );
      return rows.map(({ external_id, height, usd_micro }) => ({
        externalId: external_id,
        height: Number(height),
        usdMicro: usd_micro === null ? undefined : BigInt(usd_micro),
      }));
    },
    confirmPayment: (processor: string, externalId: string, needed: number, isSettled: boolean) =>
      run(statements.confirmPayment, [processor, externalId, needed, isSettled]),
    assignPayments: ({ processor, chain }: ChainId) =>
      run(statements.assignPayments, [processor, chain]),
    async listWaiting({ processor, chain }: ChainId): Promise<WaitingPayment[]> {
      const rows = await query<WaitingRow>(statements.listWaiting, [processor, chain]);
      return rows.map(({ external_id, market_rate, first_seen_at, account_id, ...row }) => ({
        ...row,
        externalId: external_id,
        atoms: BigInt(row.atoms),
        marketRate: market_rate ?? undefined,
        firstSeenAt: first_seen_at,
        accountId: account_id,
      }));
    },
    /** False: it was stored before. */
    async insertDirect(order: DirectOrder): Promise<boolean> {
      const { seller, buyer } = order;
      const values = [
        ...[order.orderId, order.accountId, order.family, order.idempotencyKey, order.usdMicro],
        ...[order.processor, order.method, order.asset, order.network, order.decimals],
        ...[order.externalId, order.atoms, order.rate, order.address, order.createdBy],
        ...[seller.name, seller.address, seller.taxId, buyer.name, buyer.address, buyer.taxId],
        ...[order.quotedUntil, order.watchedForMs],
      ];
      return (await query(statements.insertDirect, values)).length > 0;
    },
    putPaymentOrder: (processor: string, externalIds: readonly string[], orderId: string) =>
      idsOf(statements.putPaymentOrder, [processor, externalIds, orderId]),
    hookChanged: ({ processor, chain }: ChainId, ids: readonly string[], hasBlocks: boolean) =>
      run(statements.hookChanged, [processor, chain, ids, hasBlocks]),
    async listChainPayments(processor: string, orderId: string): Promise<OrderPayment[]> {
      const rows = await query<PaymentRow>(statements.listChainPayments, [processor, orderId]);
      return rows.map(({ external_id, chain, market_rate, first_seen_at, ...row }) => ({
        ...row,
        externalId: external_id,
        network: chain,
        atoms: BigInt(row.atoms),
        height: row.height === null ? undefined : Number(row.height),
        marketRate: market_rate ?? undefined,
        firstSeenAt: first_seen_at,
      }));
    },
    /** The open orders of an account and pool on some networks, but for one. */
    async listOpenOthers(
      order: { orderId: string; accountId: string; family: FamilyName },
      processor: string,
      networks: readonly string[],
    ): Promise<string[]> {
      const rows = await query<{ order_id: string }>(statements.listOpenOthers, [
        ...[processor, order.accountId, order.family, networks, order.orderId],
      ]);
      return rows.map(({ order_id }) => order_id);
    },
    async countAwaited({ processor, chain }: ChainId, asset: string): Promise<number> {
      const [row] = await query<{ awaited: bigint }>(statements.countAwaited, [
        ...[processor, chain, asset],
      ]);
      return Number(row?.awaited ?? 0);
    },

    // Ether.

    ensureBalances: ({ processor, chain }: ChainId, height: number) =>
      run(statements.ensureBalances, [processor, chain, height]),
    /** Those below a height: the awaited ones first, then the oldest. */
    async listBalances({ processor, chain }: ChainId, below: number, limit: number) {
      const rows = await query<BalanceRow>(statements.listBalances, [
        ...[processor, chain, below, limit],
      ]);
      return rows.map(
        ({ block_at, ...row }): Balance => ({
          address: row.address,
          atoms: BigInt(row.atoms),
          nonce: Number(row.nonce),
          height: Number(row.height),
          blockAt: block_at,
        }),
      );
    },
    /** False: another node has stored it. */
    async moveBalance({ processor, chain }: ChainId, from: Balance, to: Balance) {
      const values = [
        ...[processor, chain, from.address, from.height, to.atoms, to.nonce, to.height, to.blockAt],
      ];
      return (await query(statements.moveBalance, values)).length > 0;
    },
    /** The moment between two at which an order of Ether could be paid. Undefined: none could. */
    async findQuotedAt({ processor, chain }: ChainId, address: string, from: Date, to: Date) {
      const [row] = await query<{ at: Date }>(statements.findQuoted, [
        ...[processor, chain, address, from, to],
      ]);
      return row?.at;
    },
    /** Gives up the payments of Ether above a height. Returns their ids. */
    loseNative: ({ processor, chain }: ChainId, above: number) =>
      idsOf(statements.loseNative, [processor, chain, above]),
    /** True: an order of Ether stood between these moments. */
    async markSwept({ processor, chain }: ChainId, address: string, from: Date, to: Date) {
      const values = [processor, chain, address, from, to];
      return (await query(statements.markSwept, values)).length > 0;
    },
  };
}

type WaitingRow = {
  external_id: string;
  address: string;
  asset: string;
  decimals: number;
  atoms: string;
  market_rate: bigint | null;
  first_seen_at: Date;
  account_id: string;
  family: FamilyName;
};
type PaymentRow = {
  external_id: string;
  chain: string;
  asset: string;
  decimals: number;
  atoms: string;
  state: DepositState;
  height: bigint | null;
  market_rate: bigint | null;
  needed: number;
  first_seen_at: Date;
};
type BalanceRow = {
  address: string;
  atoms: string;
  nonce: bigint;
  height: bigint;
  block_at: Date;
};

function toBlock(height: bigint | null, hash: string | null): BlockId | undefined {
  return height === null || hash === null ? undefined : { height: Number(height), hash };
}
