// Orders and deposits for tests of the rules, without a database.

import type { RuledDeposit, RuledOrder } from "../../src/payments/decide.ts";

export const usd = (dollars: number) => BigInt(Math.round(dollars * 1_000_000));
/** Micro-credits for dollars. */
export const creditsFor = (dollars: number) => usd(dollars) * 200n;

const start = Date.UTC(2026, 10, 22, 12);
const minute = 60_000;
/** A moment, in minutes after the order was made. Its quote stands for 15. */
export const at = (minutes: number) => new Date(start + minutes * minute);
export const quotedUntil = at(15);
export const watchedUntil = at(7 * 24 * 60);

/** 100,000 USD, so that 5 USD are 5,000 satoshi. */
export const btcRate = 100_000_000_000n;
export const btc = { asset: "BTC", network: "bitcoin", decimals: 8 } as const;
export const usdt = { asset: "USDT", network: "tron", decimals: 6 } as const;

/** An order of 5 USD, to be paid in bitcoin. */
export function ruledOrder(of: Partial<RuledOrder> = {}): RuledOrder {
  return {
    ...btc,
    usdMicro: usd(5),
    rate: btcRate,
    state: "open",
    cancelledAt: null,
    createdAt: at(0),
    quotedUntil,
    watchedUntil,
    lookedAt: null,
    faults: [],
    handled: [],
    ruleMicro: 0n,
    takenBackMicro: 0n,
    decided: [],
    ...of,
  };
}

/** An order of 5 USD, to be paid in USDT. */
export function stableOrder(of: Partial<RuledOrder> = {}): RuledOrder {
  return ruledOrder({ ...usdt, rate: 1_000_000n, ...of });
}

let made = 0;

/** A settled deposit of so many dollars at the rate of the order, seen in its first minute. */
export function ruledDeposit(
  dollars: number,
  of: Partial<RuledDeposit> = {},
  order: RuledOrder = ruledOrder(),
): RuledDeposit {
  const { asset, network, decimals } = order;
  const state = of.state ?? "settled";
  return {
    asset,
    network,
    decimals,
    state,
    externalId: `dep_${++made}`,
    atoms: (usd(dollars) * 10n ** BigInt(decimals)) / order.rate,
    firstSeenAt: at(1),
    settledAt: state === "settled" ? at(2) : null,
    processorUsdMicro: null,
    marketRate: null,
    blockAt: null,
    blockRate: null,
    valuedBy: null,
    isReturned: false,
    ...of,
  };
}
