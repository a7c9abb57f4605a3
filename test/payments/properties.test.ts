// What holds for every order, whatever arrives for it and in whatever order it is looked at.

import fc from "fast-check";
import { expect, test } from "vitest";
import { microCreditsPerMicroDollar } from "../../src/base/money.ts";
import {
  capUsdMicro,
  decide,
  type RuledDeposit,
  type RuledOrder,
  toleranceUsdMicro,
  type ValuedBy,
} from "../../src/payments/decide.ts";
import { at, btc, btcRate, ruledOrder, usd, usdt } from "../support/orders.ts";

const runs = { numRuns: 2_000 };
const packs = fc.constantFrom(5, 20, 50, 200, 2000).map(usd);
const orders = fc.record({
  usdMicro: packs,
  isStable: fc.boolean(),
  cancelledAt: fc.option(fc.constant(at(3))),
});

function orderOf(of: { usdMicro: bigint; isStable: boolean; cancelledAt: Date | null }) {
  const { usdMicro, isStable, cancelledAt } = of;
  return ruledOrder({
    usdMicro,
    cancelledAt,
    ...(isStable && { ...usdt, rate: 1_000_000n }),
  });
}

/** What happens to one payment: when it is first seen, and what the looks say one after another. */
const payments = fc.array(
  fc.record({
    parts: fc.integer({ min: 1, max: 3_000 }),
    seenAfter: fc.integer({ min: 0, max: 30 }),
    isWrong: fc.boolean(),
    marketRate: fc.option(fc.bigInt({ min: 1n, max: 2n * btcRate })),
    ends: fc.constantFrom("seen", "settled", "settled", "settled", "lost", "lost after settled"),
  }),
  { maxLength: 5 },
);
type Payment = {
  parts: number;
  seenAfter: number;
  isWrong: boolean;
  marketRate: bigint | null;
  ends: string;
};

function depositsOf(order: RuledOrder, paid: readonly Payment[]): RuledDeposit[] {
  return paid.map(({ parts, seenAfter, isWrong, marketRate, ends }, index) => {
    const { asset, network, decimals } = isWrong ? { ...btc, network: "elsewhere" } : order;
    const whole = (order.usdMicro * 10n ** BigInt(order.decimals)) / order.rate;
    const atoms = (whole * BigInt(parts)) / 1_000n + 1n;
    return {
      asset,
      network,
      decimals,
      atoms,
      externalId: `dep_${index}`,
      state: ends === "seen" ? "seen" : ends.startsWith("lost") ? "lost" : "settled",
      firstSeenAt: at(seenAfter),
      settledAt: ends.includes("settled") ? at(seenAfter) : null,
      processorUsdMicro: null,
      marketRate: order.asset === "BTC" ? marketRate : null,
      blockAt: null,
      blockRate: null,
      valuedBy: null,
      isReturned: false,
    };
  });
}

/** The same deposits, as they stand after each look. Every payment settles or is seen first. */
function looksOf(deposits: readonly RuledDeposit[], upTo: readonly number[]): RuledDeposit[][] {
  return upTo.map((count) =>
    deposits
      .slice(0, count)
      .map((one) =>
        one.state === "lost" && one.settledAt ? { ...one, state: "settled" as const } : one,
      ),
  );
}

/** Decides again and again, as the looks come in, and returns what is granted in the end. */
function play(order: RuledOrder, looks: readonly RuledDeposit[][], now: Date) {
  let ruleMicro = 0n;
  let valued = new Map<string, ValuedBy>();
  for (const look of looks) {
    const deposits = look.map((one) => ({ ...one, valuedBy: valued.get(one.externalId) ?? null }));
    const made = decide({ ...order, ruleMicro }, deposits, now);
    ruleMicro = made.ruleMicro;
    valued = new Map([...valued, ...made.valued]);
  }
  return ruleMicro;
}

test("never is more granted than was received, but for the tolerance, nor above the cap", () => {
  fc.assert(
    fc.property(orders, payments, fc.integer({ min: 0, max: 60 }), (of, paid, minutes) => {
      const order = orderOf(of);
      const made = decide(order, depositsOf(order, paid), at(minutes));
      const { targetMicro, receivedUsdMicro } = made;
      const tolerance = toleranceUsdMicro(order.usdMicro);
      expect(targetMicro).toBeGreaterThanOrEqual(0n);
      expect(targetMicro).toBeLessThanOrEqual(
        (receivedUsdMicro + tolerance) * microCreditsPerMicroDollar,
      );
      expect(targetMicro).toBeLessThanOrEqual(
        capUsdMicro(order.usdMicro) * microCreditsPerMicroDollar,
      );
    }),
    runs,
  );
});

test("looks in any order, and repeated, end in the same credits", () => {
  fc.assert(
    fc.property(
      orders,
      payments,
      fc.array(fc.nat({ max: 5 }), { maxLength: 8 }),
      fc.array(fc.nat({ max: 5 }), { maxLength: 8 }),
      (of, paid, some, others) => {
        const order = orderOf(of);
        // As long as something is unsettled, nothing has ended: rule 4 waits for it.
        const deposits = depositsOf(order, paid).filter(({ state }) => state !== "seen");
        const now = at(60);
        // Each history begins with other looks, and ends with the one that shows all.
        const one = play(order, [...looksOf(deposits, some), deposits, deposits], now);
        const other = play(order, [...looksOf(deposits, others), deposits], now);
        expect(one).toBe(other);
      },
    ),
    runs,
  );
});

test("without a loss, what is granted never falls", () => {
  fc.assert(
    fc.property(
      orders,
      payments,
      fc.array(fc.nat({ max: 40 }), { maxLength: 6 }),
      (of, paid, times) => {
        const order = orderOf(of);
        const deposits = depositsOf(order, paid).filter(({ state }) => state !== "lost");
        let ruleMicro = 0n;
        times
          .sort((a, b) => a - b)
          .forEach((minutes, index) => {
            const made = decide({ ...order, ruleMicro }, deposits.slice(0, index + 1), at(minutes));
            expect(made.ruleMicro).toBeGreaterThanOrEqual(ruleMicro);
            ruleMicro = made.ruleMicro;
          });
      },
    ),
    runs,
  );
});

test("a payment in parts is worth as much as one in one piece", () => {
  fc.assert(
    fc.property(
      orders,
      fc.bigInt({ min: 2n, max: 10n ** 12n }),
      fc.array(fc.bigInt({ min: 1n, max: 10n ** 12n }), { minLength: 1, maxLength: 6 }),
      (of, atoms, cuts) => {
        const order = orderOf(of);
        const [whole] = depositsOf(order, [
          { parts: 1, seenAfter: 1, isWrong: false, marketRate: null, ends: "settled" },
        ]);
        if (!whole) return;
        let left = atoms;
        const parts = cuts.flatMap((cut) => {
          const part = left > cut ? cut : 0n;
          left -= part;
          return part > 0n ? [part] : [];
        });
        const split = [...parts, left].map((part, index) => ({
          ...whole,
          externalId: `part_${index}`,
          atoms: part,
        }));
        const now = at(60);
        const one = decide(order, [{ ...whole, atoms }], now);
        const many = decide(order, split, now);
        expect(many.targetMicro).toBe(one.targetMicro);
        expect(many.receivedUsdMicro).toBe(one.receivedUsdMicro);
      },
    ),
    runs,
  );
});
