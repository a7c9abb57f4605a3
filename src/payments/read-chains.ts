// Reads the chains that processors name, each by one node at a time, and brings what arrived to its
// orders. Credits follow from the looks at those orders, as everywhere.

import * as sql from "../../gen/sql/payments.ts";
import { timeOrderedId } from "../base/ids.ts";
import { WaitGroup } from "../base/wait-group.ts";
import { asService } from "../contract/contract.ts";
import type { Chain, ReadChain, Reading } from "./chain.ts";
import { type ChainId, idsOf, type WaitingPayment, withAtoms } from "./chain-tables.ts";
import { isStablecoin } from "./decide.ts";
import { methodOf } from "./onchain.ts";
import { partiesOf } from "./orders.ts";
import type { Parts } from "./parts.ts";

const second = 1_000;
const leaseMs = 60 * second;
/** Less than the lease. */
const readMsMax = 50 * second;
const microDollars = 1_000_000n;
/** What arrives without an order waits until it is worth so much. */
const leastUsdMicro = microDollars;
const watchedForMs = 7 * 24 * 3_600 * second;

export type ChainReader = {
  start(): void;
  stop(): Promise<void>;
};

/** `paceMs`: from the end of one reading to the next one. */
export function createChainReader(parts: Parts, paceMs: number): ChainReader {
  const { store, log } = parts;
  const running = new WaitGroup();
  const stopping = new AbortController();
  /** By processor and chain: when this node tries next, and whether the last reading failed. */
  const states = new Map<string, { nextMs: number; isReading: boolean; isFailing: boolean }>();
  let timer: NodeJS.Timeout | undefined;

  function tick(): void {
    for (const { processor, chain } of parts.chains()) {
      const key = `${processor} ${chain.name}`;
      const state = states.get(key) ?? { nextMs: 0, isReading: false, isFailing: false };
      states.set(key, state);
      if (state.isReading || performance.now() < state.nextMs) continue;
      state.isReading = true;
      running.add();
      read(processor, chain)
        .then(() => {
          if (state.isFailing) log.info({ chain: chain.name }, "a chain is read again");
          state.isFailing = false;
        })
        .catch((err: unknown) => {
          if (!state.isFailing)
            log.warn({ code: "chain_unread", chain: chain.name, err }, "a chain cannot be read");
          state.isFailing = true;
        })
        .finally(() => {
          state.isReading = false;
          state.nextMs = performance.now() + paceMs;
          running.done();
        });
    }
    if (!stopping.signal.aborted) timer = setTimeout(tick, Math.min(paceMs, second));
  }

  async function read(processor: string, chain: Chain): Promise<void> {
    const id = { processor, chain: chain.name };
    const { marketRate } = parts.processors().get(processor) ?? {};
    await store.run(sql.ensureChain, id);
    const leased = await store.leaseChain(id, leaseMs);
    if (!leased) return;
    const { lease, cursor } = leased;
    const reading: Reading = {
      id,
      cursor,
      signal: AbortSignal.any([stopping.signal, AbortSignal.timeout(readMsMax)]),
      transaction: (work) =>
        store.transaction(async (tables) => {
          await tables.lockChain(id, lease);
          return work(tables);
        }),
    };
    let found: ReadChain | undefined;
    try {
      // So that the rate of a moment is known when a block says that something arrived then.
      for (const asset of chain.quoted) await marketRate?.({ asset }, new Date());
      const result = await chain.read(reading);
      await bringToOrders(parts, reading, result);
      found = result;
    } finally {
      await store.run(sql.endReading, { ...id, lease, tip: found?.tip ?? null, nextMs: paceMs });
    }
  }

  return {
    start: tick,
    async stop() {
      stopping.abort();
      clearTimeout(timer);
      await running.wait();
    },
  };
}

async function bringToOrders(
  parts: Parts,
  { id, transaction }: Reading,
  { changed, confirm, tip }: ReadChain,
): Promise<void> {
  const { store, log, wake } = parts;
  const before = await store.findTip(id);
  await transaction((tables) => tables.run(sql.assignPayments, id));
  const waiting = (await store.run(sql.listWaiting, id)).map(withAtoms);
  for (const group of Map.groupBy(waiting, ({ address, asset }) => `${address} ${asset}`).values())
    await orderDirectly(parts, id, transaction, group).catch((err: unknown) =>
      log.warn(
        { code: "chain_payments_waiting", ...id, err },
        "what arrived without an order could not be ordered yet",
      ),
    );
  const settled = await transaction(async (tables) => {
    const ids: string[] = [];
    for (const { externalId, height, usdMicro } of await tables.run(sql.listUnsettled, id)) {
      const confirmed = confirm({
        height: Number(height),
        usdMicro: usdMicro === null ? undefined : BigInt(usdMicro),
      });
      const { processor } = id;
      await tables.run(sql.confirmPayment, { processor, externalId, ...confirmed });
      if (confirmed.isSettled) ids.push(externalId);
    }
    return ids;
  });
  const externalIds = [...changed, ...settled];
  await store.run(sql.hookChanged, { ...id, externalIds, hasBlocks: tip !== before });
  wake();
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
    const usdMicro = (atoms * rate) / one;
    if (payments === valued && usdMicro < leastUsdMicro) continue;
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
