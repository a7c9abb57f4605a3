// Reads the chains that processors name, each by one node at a time, and brings what arrived to its
// orders. Credits follow from the looks at those orders, as everywhere.

import * as sql from "../../gen/sql/payments.ts";
import { timeOrderedId } from "../base/ids.ts";
import { max, min } from "../base/money.ts";
import { Task } from "../base/task.ts";
import { asService } from "../contract/contract.ts";
import { type Chain, hookOrders, type Reading } from "./chain.ts";
import { type ChainId, idsOf, type WaitingPayment, withAtoms } from "./chain-tables.ts";
import { isStablecoin } from "./decide.ts";
import { methodOf } from "./onchain.ts";
import { partiesOf } from "./orders.ts";
import type { Parts } from "./parts.ts";

const second = 1_000;
const leaseMs = 60 * second;
/** When a reading begins no further chunk, and when it is cut off. The lease is longer. */
const chunksMsMax = 30 * second;
const readMsMax = 50 * second;
const retryMsMax = second;
const microDollars = 1_000_000n;
/** What arrives without an order is worth no more of it: a person looks at what is above. */
const directUsdMicroMax = 1_000_000n * microDollars;
const watchedForMs = 7 * 24 * 3_600 * second;
/** Payments that settle in one turn. */
const pageRows = 500;

export type ChainReader = {
  start(): void;
  /** Call after the chains of the configuration have changed. */
  reload(): void;
  stop(): Promise<void>;
};

/** `paceMs`: from the end of one reading to the next one. */
export function createChainReader(parts: Parts, paceMs: number): ChainReader {
  const { store, log } = parts;
  /** By processor and chain. */
  const tasks = new Map<string, Task>();
  const ended: Promise<void>[] = [];
  let isStarted = false;

  function reload(): void {
    if (!isStarted) return;
    const wanted = new Map(
      parts.chains().map((one) => [keyOf(one.processor, one.chain), one] as const),
    );
    for (const [key, task] of tasks) {
      if (wanted.has(key)) continue;
      tasks.delete(key);
      ended.push(task.stop());
    }
    for (const [key, { processor, chain }] of wanted) {
      if (tasks.has(key)) continue;
      const task = createTask({ processor, chain: chain.name });
      tasks.set(key, task);
      task.start();
    }
  }

  function createTask(id: ChainId): Task {
    return new Task({
      run: (stopping) => read(id, stopping),
      everyMs: Math.min(paceMs, second),
      report: {
        failed(err, isFirst) {
          if (isFirst) log.warn({ code: "chain_unread", ...id, err }, "a chain cannot be read");
        },
        recovered: () => log.info({ ...id }, "a chain is read again"),
      },
    });
  }

  /** True: there is more to read, or to settle. */
  async function read(id: ChainId, stopping: AbortSignal): Promise<boolean> {
    const chain = parts.chains().find((one) => isSameChain(one, id))?.chain;
    if (!chain) return false;
    await store.run(sql.ensureChain, id);
    const leased = await store.leaseChain(id, leaseMs);
    if (!leased) return false;
    const { lease, ...from } = leased;
    const overMs = performance.now() + chunksMsMax;
    const reading: Reading = {
      ...{ id, ...from },
      signal: AbortSignal.any([stopping, AbortSignal.timeout(readMsMax)]),
      isOver: () => stopping.aborted || performance.now() > overMs,
      transaction: (work) =>
        store.transaction(async (tables) => {
          await tables.lockChain(id, lease);
          return work(tables);
        }),
    };
    try {
      const { tip, isWhole } = await chain.read(reading);
      const isMore = await bringToOrders(parts, chain, reading);
      const nextMs = isWhole && !isMore ? paceMs : 0;
      await store.run(sql.endReading, { ...id, lease, tip, isWhole, nextMs });
      return nextMs === 0;
    } catch (error) {
      // What was stored before it failed waits for nothing.
      await bringToOrders(parts, chain, reading).catch(() => undefined);
      const nextMs = Math.min(paceMs, retryMsMax);
      const failed = await store.run(sql.failReading, { ...id, lease, nextMs });
      if (failed?.unreadBlock != null)
        log.error(
          { code: "chain_unread", ...id, block: Number(failed.unreadBlock), err: error },
          "a block of a chain cannot be read",
        );
      throw error;
    }
  }

  return {
    start() {
      isStarted = true;
      reload();
    },
    reload,
    async stop() {
      isStarted = false;
      await Promise.all([...ended, ...[...tasks.values()].map((task) => task.stop())]);
    },
  };
}

function keyOf(processor: string, { name }: Chain): string {
  return `${processor} ${name}`;
}

function isSameChain(one: { processor: string; chain: Chain }, { processor, chain }: ChainId) {
  return one.processor === processor && one.chain.name === chain;
}

/** Gives what arrived its orders, and settles what is deep enough. True: there is more of it. */
async function bringToOrders(
  parts: Parts,
  chain: Chain,
  { id, transaction }: Reading,
): Promise<boolean> {
  const { store, log, wake } = parts;
  await transaction((tables) => tables.run(sql.assignPayments, id));
  const waiting = (await store.run(sql.listWaiting, id)).map(withAtoms);
  for (const group of Map.groupBy(waiting, ({ address, asset }) => `${address} ${asset}`).values())
    await orderDirectly(parts, id, transaction, group).catch((err: unknown) =>
      log.warn(
        { code: "chain_payments_waiting", ...id, err },
        "what arrived without an order could not be ordered yet",
      ),
    );
  const isMore = await settlePayments(parts, chain, { id, transaction });
  wake();
  return isMore;
}

/** Settles a page of payments. True: there are more. */
async function settlePayments(
  { store }: Pick<Parts, "store">,
  chain: Chain,
  { id, transaction }: Pick<Reading, "id" | "transaction">,
): Promise<boolean> {
  const { height } = (await store.findReadChain(id)) ?? { height: 0 };
  const byBlocks = chain.blocksNeeded !== undefined;
  const page = await store.run(sql.listSettling, { ...id, height, byBlocks, rows: pageRows });
  if (page.length === 0) return false;
  const flooded = page.filter(({ isFlooded }) => isFlooded).map(({ address }) => address);
  if (flooded.length > 0) await store.run(sql.markFlooded, { ...id, addresses: flooded });
  const neededBy = await blocksNeeded(store, chain, id, page);
  const changed = await transaction(async (tables) => {
    const addresses = page.map(({ address }) => address);
    const needed = page.map(({ accountId }) => neededBy.get(accountId) ?? 1);
    const of = { ...id, addresses, needed, rows: pageRows };
    const raised = await tables.run(sql.raiseNeeded, of);
    const isFlooded = page.map((one) => one.isFlooded);
    const settled = await tables.run(sql.settlePayments, { ...of, flooded: isFlooded, height });
    const externalIds = idsOf([...raised, ...settled]);
    await hookOrders(tables, id, externalIds);
    return externalIds.length;
  });
  // Of each address, a page takes some only.
  return changed > page.length || (changed > 0 && page.length === pageRows);
}

/** Blocks that payments need by what their accounts were paid within a day. */
async function blocksNeeded(
  store: Parts["store"],
  { blocksNeeded: neededOf }: Chain,
  id: ChainId,
  page: readonly sql.ListSettlingRow[],
): Promise<ReadonlyMap<string, number>> {
  if (!neededOf) return new Map();
  const accountIds = [...new Set(page.map(({ accountId }) => accountId))];
  const sums = await store.run(sql.sumDays, { ...id, accountIds });
  return new Map(
    sums.map(({ accountId, usdMicro }) => [
      accountId,
      neededOf(usdMicro === null ? undefined : BigInt(usdMicro)),
    ]),
  );
}

/**
 * Makes orders for what arrived at an address without one: together what has a rate, once it is
 * worth a dollar, and together what has none, for a person.
 */
async function orderDirectly(
  parts: Parts,
  { processor: name, chain }: ChainId,
  transaction: Reading["transaction"],
  group: readonly WaitingPayment[],
): Promise<void> {
  const rateOf = (one: WaitingPayment) => (isStablecoin(one) ? microDollars : one.marketRate);
  const valued = group.filter((one) => rateOf(one) !== null);
  const unvalued = group.filter((one) => rateOf(one) === null);
  for (const payments of [valued, unvalued]) {
    const [first] = payments;
    if (!first) continue;
    const { asset, decimals, address, accountId, family } = first;
    const one = 10n ** BigInt(decimals);
    const atoms = payments.reduce((sum, payment) => sum + payment.atoms, 0n);
    const worth = payments.reduce((sum, each) => sum + each.atoms * (rateOf(each) ?? 0n), 0n);
    const rate = worth / atoms;
    const value = (atoms * rate) / one;
    const usdMicro = max(1n, min(value, directUsdMicroMax));
    const { account } = await parts.billing.getAccount(
      { accountId },
      { contextValues: asService("payments") },
    );
    const seenMs = payments.map(({ firstSeenAt }) => firstSeenAt.getTime());
    const isValued = payments === valued;
    const orderId = timeOrderedId("ord_");
    await transaction(async (tables) => {
      await tables.run(sql.insertDirect, {
        orderId,
        accountId,
        family,
        asset,
        decimals,
        atoms,
        payTo: address,
        idempotencyKey: `direct:${name}:${first.externalId}`,
        // Of unknown value, it came after the end of its quote: a person decides what it is worth.
        ...(isValued ? { rate, usdMicro } : { rate: 1n, usdMicro: 1n }),
        quotedUntil: new Date(isValued ? Math.max(...seenMs) : Math.min(...seenMs) - second),
        processor: name,
        network: chain,
        method: methodOf(name, asset, chain),
        externalId: `${chain}:${orderId}`,
        createdBy: `processor:${name}`,
        ...partiesOf(parts, name, account),
        watchedForMs,
      });
      const externalIds = idsOf(payments);
      const given = { processor: name, externalIds, orderId };
      if ((await tables.run(sql.putPaymentOrder, given)) < externalIds.length)
        throw new Error("a payment has an order by now");
    });
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * what arrived without an order is credited late, and it is repeated; look at the database if
     * it goes on
     */
    chain_payments_waiting: true;
    /**
     * payments on a chain are credited late, and nothing is lost; look at its node: its address,
     * whether it is behind, and whether it is of that chain
     */
    chain_unread: true;
  }
}
