// The rules about money, on 200,000 random orders: what one decision costs, and that none grants
// more than was received. A found order makes the run void.

import { microCreditsPerMicroDollar } from "../../../src/base/money.ts";
import {
  capUsdMicro,
  decide,
  type RuledDeposit,
  type RuledOrder,
  toleranceUsdMicro,
  type ValuedBy,
} from "../../../src/payments/decide.ts";
import { type Result, single } from "../report.ts";

const orders = 200_000;
const minute = 60_000;
const start = Date.UTC(2026, 10, 22);

/** mulberry32: the same orders in each run. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const coins = [
  { asset: "BTC", network: "bitcoin", decimals: 8, rate: 65_000_000_000n },
  { asset: "ETH", network: "ethereum", decimals: 18, rate: 2_500_000_000n },
  { asset: "USDT", network: "tron", decimals: 6, rate: 1_000_000n },
] as const;

export async function paymentsRules(): Promise<Result> {
  const random = generator(20_261_122);
  const pick = <T>(list: readonly T[]): T => {
    const one = list[Math.floor(random() * list.length)];
    if (one === undefined) throw new Error("the list is empty");
    return one;
  };
  const faults: string[] = [];
  const states = new Map<string, number>();
  let [decisions, decidingMs] = [0, 0];
  for (let count = 0; count < orders; count++) {
    const coin = pick(coins);
    const order: RuledOrder = {
      ...coin,
      usdMicro: BigInt(pick([5, 20, 50, 200, 2_000])) * 1_000_000n,
      state: "open",
      cancelledAt: random() < 0.1 ? new Date(start + 3 * minute) : null,
      createdAt: new Date(start),
      quotedUntil: new Date(start + 15 * minute),
      watchedUntil: new Date(start + 100 * minute),
      lookedAt: null,
      faults: random() < 0.02 ? ["marked"] : [],
      handled: [],
      ruleMicro: 0n,
      takenBackMicro: 0n,
      decided: [],
    };
    let deposits: RuledDeposit[] = [];
    let { state, ruleMicro } = order;
    let hasLost = false;
    const valued = new Map<string, ValuedBy>();
    for (let minutes = 1; minutes < 120; minutes += 1 + Math.floor(random() * 30)) {
      const now = new Date(start + minutes * minute);
      deposits = deposits.map((one) => advance(one, random, now));
      if (random() < 0.6) deposits.push(arrive(order, deposits.length, random, now));
      hasLost ||= deposits.some((one) => one.state === "lost" && one.settledAt !== null);
      const seen = deposits.map((one) => ({
        ...one,
        valuedBy: valued.get(one.externalId) ?? null,
      }));
      const beganAtMs = performance.now();
      const made = decide({ ...order, state, ruleMicro, lookedAt: now }, seen, now);
      decidingMs += performance.now() - beganAtMs;
      decisions++;
      const fault = faultOf(order, made, hasLost ? undefined : ruleMicro);
      if (fault) faults.push(`order ${count}, minute ${minutes}: ${fault}`);
      ({ state, ruleMicro } = made);
      for (const [id, by] of made.valued) valued.set(id, by);
    }
    states.set(state, (states.get(state) ?? 0) + 1);
  }
  const reached = [...states].map(([name, count]) => `${count} ${name}`).join(", ");
  return {
    rows: [
      { measure: "orders", value: single(orders) },
      { measure: "decisions", value: single(decisions) },
      { measure: "a decision takes", value: single((1_000 * decidingMs) / decisions), unit: "µs" },
      { measure: "orders that break a rule", value: single(faults.length), must: "0" },
    ],
    notes: [`last states: ${reached}`],
    faults,
  };
}

function arrive(order: RuledOrder, index: number, random: () => number, now: Date): RuledDeposit {
  const { asset, network, decimals } = order;
  const whole = (order.usdMicro * 10n ** BigInt(decimals)) / order.rate;
  const share = random() < 0.4 ? 1_000 : Math.floor(random() * 2_500);
  return {
    asset,
    network: random() < 0.03 ? "elsewhere" : network,
    decimals,
    externalId: `dep_${index}`,
    atoms: (whole * BigInt(share)) / 1_000n + 1n,
    state: "seen",
    firstSeenAt: now,
    settledAt: null,
    processorUsdMicro: null,
    marketRate: random() < 0.5 ? BigInt(Math.floor(random() * 2 * Number(order.rate)) + 1) : null,
    blockAt: null,
    blockRate: null,
    valuedBy: null,
    isReturned: false,
  };
}

function advance(deposit: RuledDeposit, random: () => number, now: Date): RuledDeposit {
  if (deposit.state === "seen" && random() < 0.6)
    return { ...deposit, state: "settled", settledAt: now };
  if (deposit.state !== "lost" && random() < 0.05) return { ...deposit, state: "lost" };
  return deposit;
}

/** `atLeast`: what was granted before. Undefined: a deposit was lost, so it may be less now. */
function faultOf(
  order: RuledOrder,
  made: { targetMicro: bigint; receivedUsdMicro: bigint },
  atLeast: bigint | undefined,
): string | undefined {
  const { targetMicro, receivedUsdMicro } = made;
  const most = (receivedUsdMicro + toleranceUsdMicro(order.usdMicro)) * microCreditsPerMicroDollar;
  if (targetMicro < 0n) return "less than nothing is granted";
  if (targetMicro > most) return `${targetMicro} is granted for ${receivedUsdMicro}`;
  if (targetMicro > capUsdMicro(order.usdMicro) * microCreditsPerMicroDollar)
    return "more than the cap is granted";
  if (atLeast !== undefined && targetMicro < atLeast) return "credits are taken without a loss";
  return undefined;
}
