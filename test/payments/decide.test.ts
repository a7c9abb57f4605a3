// Every rule about the money of an order, and every cell of its lifecycle. The tables are the ones
// of src/payments/README.md.

import { describe, expect, test } from "vitest";
import {
  type Decision,
  decide,
  type OrderState,
  type RuledDeposit,
  type RuledOrder,
  valueDeposit,
} from "../../src/payments/decide.ts";
import {
  at,
  btcRate,
  creditsFor,
  ruledDeposit,
  ruledOrder,
  stableOrder,
  usd,
  usdt,
} from "../support/orders.ts";

const inTime = at(5);
const late = at(20);

type Case = {
  name: string;
  order?: RuledOrder;
  deposits: RuledDeposit[];
  now: Date;
  granted: bigint;
  attention?: Decision["attention"];
};

function check({ name, order = ruledOrder(), deposits, now, granted, attention }: Case): void {
  test(name, () => {
    const made = decide(order, deposits, now);
    expect([made.targetMicro, made.attention]).toEqual([granted, attention]);
    if (attention === undefined) expect(made.facts).toEqual([]);
  });
}

const stable = stableOrder();
const ofStable = (dollars: number, of: Partial<RuledDeposit> = {}) =>
  ruledDeposit(dollars, of, stable);

describe("rule 1: from 1 % below the price, the pack is granted in full", () => {
  const cases: Case[] = [
    { name: "the exact price", deposits: [ruledDeposit(5)], now: inTime, granted: creditsFor(5) },
    { name: "1 % less", deposits: [ruledDeposit(4.95)], now: inTime, granted: creditsFor(5) },
    {
      name: "a satoshi below that is no pack",
      deposits: [ruledDeposit(4.949)],
      now: inTime,
      granted: 0n,
    },
    {
      name: "of a large pack, 1 USD less",
      order: ruledOrder({ usdMicro: usd(200) }),
      deposits: [ruledDeposit(199)],
      now: inTime,
      granted: creditsFor(200),
    },
    {
      name: "of a large pack, more than 1 USD less is no pack",
      order: ruledOrder({ usdMicro: usd(200) }),
      deposits: [ruledDeposit(198.999)],
      now: inTime,
      granted: 0n,
    },
    {
      name: "in two deposits",
      deposits: [ruledDeposit(2), ruledDeposit(3)],
      now: inTime,
      granted: creditsFor(5),
    },
    {
      name: "what was only seen does not count",
      deposits: [ruledDeposit(5, { state: "seen" })],
      now: inTime,
      granted: 0n,
    },
  ];
  for (const one of cases) check(one);
});

describe("rule 2: more than the price is granted up to a cap", () => {
  const cases: Case[] = [
    { name: "a little more", deposits: [ruledDeposit(6)], now: inTime, granted: creditsFor(6) },
    {
      name: "50 USD more than the price",
      deposits: [ruledDeposit(55)],
      now: inTime,
      granted: creditsFor(55),
    },
    {
      name: "the rest above that waits for a person",
      deposits: [ruledDeposit(56)],
      now: inTime,
      granted: creditsFor(55),
      attention: "overpaid",
    },
    {
      name: "of a large pack, twice its price",
      order: ruledOrder({ usdMicro: usd(200) }),
      deposits: [ruledDeposit(401)],
      now: inTime,
      granted: creditsFor(400),
      attention: "overpaid",
    },
    {
      name: "10^77 atoms are no more than the cap",
      deposits: [ruledDeposit(1, { atoms: 10n ** 77n })],
      now: inTime,
      granted: creditsFor(55),
      attention: "overpaid",
    },
  ];
  for (const one of cases) check(one);
});

describe("rules 3 and 4: less than the price waits for the end of the quote", () => {
  const cases: Case[] = [
    { name: "the quote stands: none yet", deposits: [ruledDeposit(3)], now: inTime, granted: 0n },
    {
      name: "the quote is over: what arrived",
      deposits: [ruledDeposit(3)],
      now: late,
      granted: creditsFor(3),
    },
    {
      name: "at the last moment of the quote: none yet",
      deposits: [ruledDeposit(3)],
      now: at(15),
      granted: 0n,
    },
    {
      name: "the quote is over and more was seen: none yet",
      deposits: [ruledDeposit(3), ruledDeposit(2, { state: "seen" })],
      now: late,
      granted: 0n,
    },
    {
      name: "what was seen is lost: what arrived",
      deposits: [ruledDeposit(3), ruledDeposit(2, { state: "lost" })],
      now: late,
      granted: creditsFor(3),
    },
    {
      name: "1 USD is enough",
      deposits: [ruledDeposit(1)],
      now: late,
      granted: creditsFor(1),
    },
    {
      name: "below 1 USD grants nothing, and asks nobody",
      deposits: [ruledDeposit(0.999)],
      now: late,
      granted: 0n,
    },
    {
      name: "a cancelled order waits for no more",
      order: ruledOrder({ cancelledAt: at(3) }),
      deposits: [ruledDeposit(3)],
      now: inTime,
      granted: creditsFor(3),
    },
    {
      name: "what was granted stays while a new deposit is unsettled",
      order: ruledOrder({ ruleMicro: creditsFor(3), state: "partly_paid" }),
      deposits: [ruledDeposit(3), ruledDeposit(1, { state: "seen" })],
      now: late,
      granted: creditsFor(3),
    },
  ];
  for (const one of cases) check(one);
});

describe("a quote holds for what was seen in time, in a block within 2 hours of its end", () => {
  const minutes = (count: number) => at(15 + count);
  const half = btcRate / 2n;
  const seen = (of: Partial<RuledDeposit>) => [ruledDeposit(6, { firstSeenAt: at(15), ...of })];
  const [now, granted] = [minutes(600), creditsFor(6)];
  const cases: Case[] = [
    {
      name: "in a block just in time",
      deposits: seen({ blockAt: minutes(120), blockRate: half }),
      now,
      granted,
    },
    {
      name: "later: at the rate of its block, where that is lower",
      deposits: seen({ blockAt: minutes(121), blockRate: half }),
      now,
      granted: creditsFor(3),
    },
    {
      name: "later: at the quote, where that is lower",
      deposits: seen({ blockAt: minutes(121), blockRate: btcRate * 2n }),
      now,
      granted,
    },
    {
      name: "later, and the rate of its block is unknown",
      deposits: seen({ blockAt: minutes(121) }),
      now,
      granted: 0n,
      attention: "late",
    },
    {
      name: "older than the order: at the rate of its first sight, where that is lower",
      deposits: seen({ blockAt: at(1), firstSeenAt: at(-1), marketRate: half }),
      now,
      granted: creditsFor(3),
    },
    {
      name: "older than the order: at the quote, where that is lower",
      deposits: seen({ blockAt: at(1), firstSeenAt: at(-1), marketRate: btcRate * 2n }),
      now,
      granted,
    },
    {
      name: "older than the order, and its rate is unknown",
      deposits: seen({ blockAt: at(1), firstSeenAt: at(-1) }),
      now,
      granted: 0n,
      attention: "late",
    },
    {
      name: "a stablecoin is a dollar at any time",
      order: stable,
      deposits: [ofStable(5, { firstSeenAt: at(-1), blockAt: minutes(500) })],
      now,
      granted: creditsFor(5),
    },
  ];
  for (const one of cases) check(one);
});

describe("rules 5 and 6: what comes after the quote", () => {
  const firstSeenAt = at(16);
  const cases: Case[] = [
    {
      name: "seen at the last moment of the quote: its rate counts",
      deposits: [ruledDeposit(5, { firstSeenAt: at(15), marketRate: 1n })],
      now: late,
      granted: creditsFor(5),
    },
    {
      name: "a stablecoin counts as ever",
      order: stable,
      deposits: [ofStable(5, { firstSeenAt })],
      now: late,
      granted: creditsFor(5),
    },
    {
      name: "a stablecoin of less counts as ever",
      order: stable,
      deposits: [ofStable(2, { firstSeenAt })],
      now: late,
      granted: creditsFor(2),
    },
    {
      name: "bitcoin counts at the rate of its first sight",
      deposits: [ruledDeposit(6, { firstSeenAt, marketRate: btcRate / 2n })],
      now: late,
      granted: creditsFor(3),
    },
    {
      name: "bitcoin without a rate waits for a person",
      deposits: [ruledDeposit(5, { firstSeenAt })],
      now: late,
      granted: 0n,
      attention: "late",
    },
    {
      name: "what came in time counts all the same",
      deposits: [ruledDeposit(5), ruledDeposit(5, { firstSeenAt })],
      now: late,
      granted: creditsFor(5),
      attention: "late",
    },
    {
      name: "a stablecoin 2 % off its dollar waits for a person",
      order: stable,
      deposits: [ofStable(5, { marketRate: 980_000n })],
      now: inTime,
      granted: 0n,
      attention: "depeg",
    },
    {
      name: "a stablecoin 2 % above its dollar waits too",
      order: stable,
      deposits: [ofStable(5, { marketRate: 1_020_000n })],
      now: inTime,
      granted: 0n,
      attention: "depeg",
    },
    {
      name: "a stablecoin less than 2 % off counts",
      order: stable,
      deposits: [ofStable(5, { marketRate: 980_001n })],
      now: inTime,
      granted: creditsFor(5),
    },
  ];
  for (const one of cases) check(one);
});

describe("rule 7: another coin or network", () => {
  const cases: Case[] = [
    {
      name: "another coin waits for a person",
      deposits: [ruledDeposit(5, usdt)],
      now: inTime,
      granted: 0n,
      attention: "wrong_asset",
    },
    {
      name: "the coin on another network waits for a person",
      order: stable,
      deposits: [ofStable(5, { network: "base" })],
      now: inTime,
      granted: 0n,
      attention: "wrong_asset",
    },
    {
      name: "the processor's own value counts",
      deposits: [ruledDeposit(5, { ...usdt, processorUsdMicro: usd(4.99) })],
      now: inTime,
      granted: creditsFor(5),
    },
    {
      name: "seen, and not settled, needs nobody",
      deposits: [ruledDeposit(5, { ...usdt, state: "seen" })],
      now: inTime,
      granted: 0n,
    },
  ];
  for (const one of cases) check(one);
});

describe("rule 8: what was credited is gone", () => {
  const lost = (dollars: number) =>
    ruledDeposit(dollars, { state: "lost", settledAt: at(2), valuedBy: "quote" });
  const paid = (dollars: number, of: Partial<RuledOrder> = {}) =>
    ruledOrder({ state: "paid", ruleMicro: creditsFor(dollars), ...of });
  const cases: Case[] = [
    {
      name: "all of it: nothing stays",
      order: paid(5),
      deposits: [lost(5)],
      now: inTime,
      granted: 0n,
      attention: "lost",
    },
    {
      name: "a part: the rest is granted as if the quote were over",
      order: paid(5),
      deposits: [lost(2), ruledDeposit(3)],
      now: inTime,
      granted: creditsFor(3),
      attention: "lost",
    },
    {
      name: "the rest still is the pack",
      order: paid(6),
      deposits: [lost(1), ruledDeposit(5)],
      now: inTime,
      granted: creditsFor(5),
      attention: "lost",
    },
    {
      name: "an unsettled deposit does not bring back what is gone, nor take more",
      order: paid(5),
      deposits: [lost(2), ruledDeposit(3), ruledDeposit(1, { state: "seen" })],
      now: inTime,
      granted: creditsFor(3),
      attention: "lost",
    },
    {
      name: "below 1 USD left: nothing stays",
      order: paid(5),
      deposits: [lost(4.5), ruledDeposit(0.5)],
      now: late,
      granted: 0n,
      attention: "lost",
    },
    {
      name: "in a closed order too",
      order: paid(5, { state: "closed" }),
      deposits: [lost(5)],
      now: late,
      granted: 0n,
      attention: "lost",
    },
    {
      name: "what a refund took back is not charged back once more",
      order: paid(5, { takenBackMicro: creditsFor(5) }),
      deposits: [lost(5)],
      now: late,
      granted: creditsFor(5),
      attention: "lost",
    },
    {
      name: "never settled: nothing was granted, and nobody has to look",
      order: ruledOrder({ state: "seen" }),
      deposits: [ruledDeposit(5, { state: "lost" })],
      now: inTime,
      granted: 0n,
    },
    {
      name: "a lost deposit that comes back waits for a person",
      order: ruledOrder({ state: "seen" }),
      deposits: [ruledDeposit(5, { state: "lost", isReturned: true })],
      now: inTime,
      granted: 0n,
      attention: "lost",
    },
  ];
  for (const one of cases) check(one);
});

describe("rule 9 and failures: what a processor says besides deposits", () => {
  const cases: Case[] = [
    {
      name: "called paid without a deposit: none, and a person looks",
      order: ruledOrder({ faults: ["marked"] }),
      deposits: [],
      now: inTime,
      granted: 0n,
      attention: "marked",
    },
    {
      name: "called paid with a deposit: the deposit counts",
      order: ruledOrder({ faults: ["marked"] }),
      deposits: [ruledDeposit(5)],
      now: inTime,
      granted: creditsFor(5),
    },
    {
      name: "failed to receive",
      order: ruledOrder({ faults: ["failed"] }),
      deposits: [],
      now: inTime,
      granted: 0n,
      attention: "failed",
    },
    {
      name: "in a closed account: granted, and a person looks, for each grant",
      order: ruledOrder({
        faults: ["account_closed:1", "account_closed:2"],
        handled: ["account_closed:1"],
      }),
      deposits: [ruledDeposit(5), ruledDeposit(1)],
      now: inTime,
      granted: creditsFor(6),
      attention: "account_closed",
    },
    {
      name: "in a closed account, dealt with",
      order: ruledOrder({ faults: ["account_closed:1"], handled: ["account_closed:1"] }),
      deposits: [ruledDeposit(5)],
      now: inTime,
      granted: creditsFor(5),
    },
  ];
  for (const one of cases) check(one);
});

describe("what persons decided", () => {
  const lateOne = ruledDeposit(5, { externalId: "late", firstSeenAt: at(16) });
  const cases: Case[] = [
    {
      name: "adds to what the rules grant",
      order: ruledOrder({ decided: [{ depositId: "", micro: creditsFor(1) }] }),
      deposits: [ruledDeposit(5)],
      now: late,
      granted: creditsFor(6),
    },
    {
      name: "takes the deposit out of the rules, also if its rate is known later",
      order: ruledOrder({ decided: [{ depositId: "late", micro: creditsFor(4) }] }),
      deposits: [{ ...lateOne, marketRate: btcRate }],
      now: late,
      granted: creditsFor(4),
    },
    {
      name: "falls with the deposit that it was for",
      order: ruledOrder({ decided: [{ depositId: "late", micro: creditsFor(4) }] }),
      deposits: [{ ...lateOne, state: "lost" }],
      now: late,
      granted: 0n,
      attention: "lost",
    },
    {
      name: "a fact that was dealt with needs nobody",
      order: ruledOrder({ handled: ["late:late"] }),
      deposits: [lateOne],
      now: late,
      granted: 0n,
    },
    {
      name: "a new fact of the same kind needs a person again",
      order: ruledOrder({ handled: ["late:late"] }),
      deposits: [lateOne, ruledDeposit(5, { firstSeenAt: at(17) })],
      now: late,
      granted: 0n,
      attention: "late",
    },
  ];
  for (const one of cases) check(one);
});

describe("the most pressing fact is shown", () => {
  check({
    name: "lost money before late money before too much money",
    deposits: [
      ruledDeposit(60),
      ruledDeposit(5, { firstSeenAt: at(16) }),
      ruledDeposit(1, { state: "lost", settledAt: at(2) }),
    ],
    now: late,
    granted: creditsFor(55),
    attention: "lost",
  });
});

// The table of the lifecycle: what an event makes of each state. The events of persons that no rule
// decides (cancel, refund, reopen) are in orders.test.ts.
describe("lifecycle", () => {
  const seen = ruledDeposit(5, { state: "seen" });
  const part = ruledDeposit(3);
  const full = ruledDeposit(5);
  const over = at(7 * 24 * 60 + 10);
  const cancelled = { state: "cancelled", cancelledAt: at(3) } as const;
  const partly = { state: "partly_paid", ruleMicro: 0n } as const;
  const paid = { state: "paid", ruleMicro: creditsFor(5) } as const;
  const cells: {
    from: OrderState;
    event: string;
    order?: Partial<RuledOrder>;
    deposits: RuledDeposit[];
    now: Date;
    to: OrderState;
    attention?: Decision["attention"];
  }[] = [
    { from: "open", event: "nothing", deposits: [], now: inTime, to: "open" },
    { from: "open", event: "deposit seen", deposits: [seen], now: inTime, to: "seen" },
    { from: "open", event: "all settled", deposits: [full], now: inTime, to: "paid" },
    { from: "open", event: "part settled", deposits: [part], now: inTime, to: "partly_paid" },
    { from: "open", event: "quote over", deposits: [], now: late, to: "expired" },
    { from: "open", event: "watching over", deposits: [], now: over, to: "closed" },
    {
      from: "open",
      event: "cancelled",
      order: cancelled,
      deposits: [],
      now: inTime,
      to: "cancelled",
    },

    { from: "seen", event: "more seen", deposits: [seen, seen], now: inTime, to: "seen" },
    { from: "seen", event: "all settled", deposits: [full], now: inTime, to: "paid" },
    { from: "seen", event: "part settled", deposits: [part, seen], now: inTime, to: "partly_paid" },
    { from: "seen", event: "quote over", deposits: [seen], now: late, to: "seen" },
    {
      from: "seen",
      event: "lost while the quote stands",
      deposits: [{ ...seen, state: "lost" }],
      now: inTime,
      to: "open",
    },
    {
      from: "seen",
      event: "lost after the quote",
      deposits: [{ ...seen, state: "lost" }],
      now: late,
      to: "expired",
    },
    {
      from: "seen",
      event: "watching over",
      deposits: [seen],
      now: over,
      to: "closed",
      attention: "unconfirmed",
    },

    {
      from: "partly_paid",
      event: "more seen",
      order: partly,
      deposits: [part, seen],
      now: inTime,
      to: "partly_paid",
    },
    {
      from: "partly_paid",
      event: "the rest settled",
      order: partly,
      deposits: [part, ruledDeposit(2)],
      now: inTime,
      to: "paid",
    },
    {
      from: "partly_paid",
      event: "quote over",
      order: partly,
      deposits: [part],
      now: late,
      to: "partly_paid",
    },
    {
      from: "partly_paid",
      event: "watching over",
      order: partly,
      deposits: [part],
      now: over,
      to: "closed",
    },

    {
      from: "paid",
      event: "more seen",
      order: paid,
      deposits: [full, seen],
      now: inTime,
      to: "paid",
    },
    {
      from: "paid",
      event: "more settled",
      order: paid,
      deposits: [full, full],
      now: inTime,
      to: "paid",
    },
    { from: "paid", event: "quote over", order: paid, deposits: [full], now: late, to: "paid" },
    {
      from: "paid",
      event: "watching over",
      order: paid,
      deposits: [full],
      now: over,
      to: "closed",
    },

    {
      from: "expired",
      event: "deposit seen",
      deposits: [{ ...seen, firstSeenAt: at(16) }],
      now: late,
      to: "seen",
    },
    { from: "expired", event: "all settled in time", deposits: [full], now: late, to: "paid" },
    { from: "expired", event: "part settled", deposits: [part], now: late, to: "partly_paid" },
    { from: "expired", event: "watching over", deposits: [], now: over, to: "closed" },
    {
      from: "expired",
      event: "reopened",
      order: { quotedUntil: at(40) },
      deposits: [],
      now: late,
      to: "open",
    },

    {
      from: "cancelled",
      event: "deposit seen",
      order: cancelled,
      deposits: [seen],
      now: inTime,
      to: "seen",
    },
    {
      from: "cancelled",
      event: "all settled",
      order: cancelled,
      deposits: [full],
      now: inTime,
      to: "paid",
    },
    {
      from: "cancelled",
      event: "part settled",
      order: cancelled,
      deposits: [part],
      now: inTime,
      to: "partly_paid",
    },
    {
      from: "cancelled",
      event: "quote over",
      order: cancelled,
      deposits: [],
      now: late,
      to: "cancelled",
    },
    {
      from: "cancelled",
      event: "watching over",
      order: cancelled,
      deposits: [],
      now: over,
      to: "closed",
    },
    {
      from: "cancelled",
      event: "reopened",
      order: { cancelledAt: null },
      deposits: [],
      now: inTime,
      to: "open",
    },

    {
      from: "closed",
      event: "new deposit seen",
      deposits: [{ ...seen, firstSeenAt: over }],
      now: over,
      to: "closed",
      attention: "late",
    },
    {
      from: "closed",
      event: "new deposit settled",
      deposits: [{ ...full, firstSeenAt: over }],
      now: over,
      to: "closed",
      attention: "late",
    },
    {
      from: "closed",
      event: "a stablecoin settled",
      order: usdt,
      deposits: [{ ...full, ...usdt, firstSeenAt: over }],
      now: over,
      to: "closed",
      attention: "late",
    },
    { from: "closed", event: "watching over", deposits: [], now: over, to: "closed" },
  ];
  for (const { from, event, order, deposits, now, to, attention } of cells) {
    test(`${from}, ${event}: ${to}`, () => {
      const made = decide(ruledOrder({ state: from, lookedAt: now, ...order }), deposits, now);
      expect([made.state, made.attention]).toEqual([to, attention]);
    });
  }

  test("an order is never closed because its processor was away", () => {
    const open = ruledOrder({ lookedAt: at(10) });
    expect(decide(open, [], over).state).toBe("expired");
    expect(decide(ruledOrder({ lookedAt: null }), [], over).state).toBe("expired");
  });

  test("at the end of watching, what arrived in part is granted although more was seen", () => {
    const order = ruledOrder({ state: "partly_paid", lookedAt: over });
    const made = decide(order, [part, seen], over);
    expect([made.state, made.targetMicro]).toEqual(["closed", creditsFor(3)]);
    expect(made.attention).toBe("unconfirmed");
  });

  test("nothing that arrives after the end of watching is credited by itself", () => {
    const order = ruledOrder({ state: "closed", ruleMicro: creditsFor(3) });
    const deposits = [{ ...part, valuedBy: "quote" as const }, full];
    expect(decide(order, deposits, over).targetMicro).toBe(creditsFor(3));
  });
});

describe("at the borders of the rules", () => {
  const ms = (date: Date, more: number) => new Date(date.getTime() + more);
  const usdc = { asset: "USDC", network: "tron", decimals: 6 } as const;
  const closed = { state: "closed", lookedAt: null } as const;
  /** An address that is older than the order was paid before it. */
  const older = (beforeMs: number, marketRate: bigint | null) =>
    ruledDeposit(5, { firstSeenAt: ms(at(0), -beforeMs), blockAt: at(1), marketRate });
  const lost = ruledDeposit(5, { state: "lost", settledAt: null });
  const seen = (more: Partial<RuledDeposit> = {}) =>
    ruledDeposit(1, { state: "seen", externalId: "seen", ...more });
  const named = (externalId: string, more: Partial<RuledDeposit> = {}) =>
    ruledDeposit(0.5, { externalId, ...more });
  const cases: (Case & { facts?: readonly string[] })[] = [
    {
      name: "a block of the order's own first moment counts by the quote",
      deposits: [older(0, btcRate / 2n)],
      now: inTime,
      granted: creditsFor(5),
    },
    {
      name: "a millisecond earlier, the market counts as well",
      deposits: [older(1, btcRate / 2n)],
      now: late,
      granted: creditsFor(2.5),
    },
    {
      name: "15 seconds earlier, the quote stands in for a market that nobody knows",
      deposits: [older(15_000, null)],
      now: inTime,
      granted: creditsFor(5),
    },
    {
      name: "earlier still, a person values it",
      deposits: [{ ...older(15_001, null), externalId: "dep" }],
      now: inTime,
      granted: 0n,
      attention: "late",
      facts: ["late:dep"],
    },
    {
      name: "the quote holds for USDC after its end",
      order: stableOrder(usdc),
      deposits: [ruledDeposit(5, { firstSeenAt: late }, stableOrder(usdc))],
      now: late,
      granted: creditsFor(5),
    },
    ...[
      [1_019_999n, true],
      [1_020_000n, false],
      [980_001n, true],
      [980_000n, false],
    ].map(
      ([marketRate, isDollar]): Case => ({
        name: `a stablecoin at ${marketRate} micro-dollars is ${isDollar ? "a dollar" : "none"}`,
        order: stable,
        deposits: [ofStable(5, { marketRate: BigInt(Number(marketRate)) })],
        now: inTime,
        granted: isDollar ? creditsFor(5) : 0n,
        ...(!isDollar && { attention: "depeg" as const }),
      }),
    ),
    {
      name: "in a closed order, a person sees that it came too late",
      order: stableOrder(closed),
      deposits: [ofStable(5, { marketRate: 1n, externalId: "dep" })],
      now: late,
      granted: 0n,
      attention: "late",
      facts: ["late:dep"],
    },
    {
      name: "another coin of the same network is another asset",
      deposits: [ruledDeposit(5, { asset: "RUNES", externalId: "dep" })],
      now: inTime,
      granted: 0n,
      attention: "wrong_asset",
      facts: ["wrong_asset:dep"],
    },
    ...(["swept", "flooded", "failed"] as const).map(
      (fault): Case => ({
        name: `an address that was ${fault} needs a person`,
        order: ruledOrder({ faults: [fault] }),
        deposits: [],
        now: inTime,
        granted: 0n,
        attention: fault,
      }),
    ),
    {
      name: "an order that was marked as paid needs a person if all that came is lost",
      order: ruledOrder({ faults: ["marked"] }),
      deposits: [lost],
      now: inTime,
      granted: 0n,
      attention: "marked",
    },
    {
      name: "and none if something else came",
      order: ruledOrder({ faults: ["marked"] }),
      deposits: [lost, seen()],
      now: inTime,
      granted: 0n,
    },
    {
      name: "what is left in a closed order is granted beside what never settled",
      order: ruledOrder(closed),
      deposits: [ruledDeposit(3, { valuedBy: "quote" }), seen()],
      now: late,
      granted: creditsFor(3),
      attention: "unconfirmed",
      facts: ["unconfirmed:seen"],
    },
    {
      name: "less than a dollar waits for what has not settled",
      deposits: [named("dust"), seen()],
      now: late,
      granted: 0n,
    },
    {
      name: "less than a dollar asks nobody once nothing more is expected",
      deposits: [named("dust")],
      now: late,
      granted: 0n,
    },
    {
      name: "less than a dollar adds no reason to look at a closed order",
      order: ruledOrder(closed),
      deposits: [named("dust", { valuedBy: "quote" }), seen()],
      now: inTime,
      granted: 0n,
      attention: "unconfirmed",
      facts: ["unconfirmed:seen"],
    },
    ...([0, 1] as const).map((more): Case & { facts: string[] } => ({
      name: `seen ${more} ms after the end of watching, it is ${more ? "late" : "unconfirmed"}`,
      order: ruledOrder(closed),
      deposits: [seen({ firstSeenAt: ms(ruledOrder().watchedUntil, more) })],
      now: late,
      granted: 0n,
      attention: more ? "late" : "unconfirmed",
      facts: [more ? "late:seen" : "unconfirmed:seen"],
    })),
    {
      name: "what a person granted for a deposit is there as long as the deposit",
      order: ruledOrder({
        decided: [
          { depositId: "here", micro: 7n },
          { depositId: "gone", micro: 100n },
          { depositId: "unknown", micro: 1_000n },
          { depositId: "", micro: 10_000n },
        ],
      }),
      deposits: [
        named("here"),
        named("gone", { state: "lost" }),
        named("other", { state: "seen" }),
      ],
      now: inTime,
      granted: 10_007n,
    },
  ];
  for (const { facts, ...one } of cases) {
    check(one);
    if (facts)
      test(`${one.name}: its facts`, () => {
        expect(decide(one.order ?? ruledOrder(), one.deposits, one.now).facts).toEqual(facts);
      });
  }

  test("an order closes with the first look after the end of watching", () => {
    const { watchedUntil } = ruledOrder();
    const stateOf = (lookedAt: Date) => decide(ruledOrder({ lookedAt }), [], late).state;
    expect([watchedUntil, ms(watchedUntil, 1)].map(stateOf)).toEqual(["expired", "closed"]);
  });

  test("a deposit is worth its coins at the rate that counts, or what the processor says", () => {
    const order = ruledOrder();
    const deposit = ruledDeposit(5, { processorUsdMicro: 1_234_567n, marketRate: btcRate / 5n });
    const worth = (["quote", "market", "lowest", "processor"] as const).map((by) =>
      valueDeposit(order, deposit, by),
    );
    expect(worth).toEqual([usd(5), usd(1), usd(5), 1_234_567n]);
    const block = { ...deposit, blockAt: at(1), firstSeenAt: at(-1) };
    expect(valueDeposit(order, block, "lowest")).toBe(usd(1));
    const { valued } = decide(
      order,
      [ruledDeposit(5, { externalId: "dep", blockAt: at(2) })],
      late,
    );
    expect(valued.get("dep")).toBe("quote");
  });
});
