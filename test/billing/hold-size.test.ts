import fc from "fast-check";
import { expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { costMicro, nanoOf, type Prices } from "../../src/base/cost.ts";
import {
  type Funds,
  isHoldOf,
  least,
  maxHoldMicro,
  minHoldMicro,
  resizedHoldMicro,
  sizeHold,
  type UsageBounds,
} from "../../src/billing/hold-size.ts";
import { maxInputPriceNano, maxOutputPriceNano } from "../../src/billing/price.ts";
import {
  anyAmount,
  anyBounds,
  anyCountedBounds,
  anyPrices,
  anyUsage,
  fundsBeside,
} from "../support/arbitraries.ts";
import { usage } from "../support/ledger.ts";

/** Prices and bounds, and funds of which about their smallest or largest hold is free. */
/** The tokens that a hold of this category is for. */
const fieldOf: Readonly<Record<number, "cacheWrite5m" | "cacheWrite1h">> = {
  [InputCategory.CACHE_WRITE_5M]: "cacheWrite5m",
  [InputCategory.CACHE_WRITE_1H]: "cacheWrite1h",
};

const anyCase = fc
  .tuple(anyPrices, fc.oneof(anyBounds, anyCountedBounds))
  .chain(([prices, bounds]) => {
    const price = maxOutputPriceNano(prices);
    const full = maxHoldMicro(prices, bounds);
    const quarter = full + 3n * ceil(BigInt(bounds.maxOutput) * price);
    const funds = fundsBeside(0n, minHoldMicro(prices, bounds), full, quarter);
    return fc.tuple(fc.constant(prices), fc.constant<UsageBounds>(bounds), funds);
  });

/** True when the funds cover `micro`, computed the simple way. */
function covers({ posted, poolHeld, limits = [] }: Funds, micro: bigint): boolean {
  return posted - poolHeld >= micro && limits.every(({ left, held }) => left - held >= micro);
}

/** Micro-credits of nano-credits, rounded up. */
function ceil(nano: bigint): bigint {
  return nano / 1000n + (nano % 1000n > 0n ? 1n : 0n);
}

/** The most that the input and searches may cost, in nano-credits, computed the simple way. */
function mostInputNano(prices: Prices, bounds: UsageBounds): bigint {
  return (
    BigInt(bounds.input) * maxInputPriceNano(prices, bounds.mostExpensiveInput) +
    BigInt(bounds.webSearches) * prices.webSearch * 1000n
  );
}

/** The least that they may cost. */
function leastInputNano(prices: Prices, bounds: UsageBounds): bigint {
  const most = mostInputNano(prices, bounds);
  if (bounds.minInput === undefined) return most;
  return least(
    BigInt(bounds.minInput) * maxInputPriceNano(prices, InputCategory.PLAIN) +
      BigInt(bounds.webSearches) * prices.webSearch * 1000n,
    most,
  );
}

test("a request is short exactly if its least worth is not free, by other requests only if waiting helps", () => {
  fc.assert(
    fc.property(anyCase, ([prices, bounds, funds]) => {
      const needed = ceil(
        leastInputNano(prices, bounds) + BigInt(bounds.minOutput) * maxOutputPriceNano(prices),
      );
      const grant = sizeHold(prices, bounds, funds);
      expect(grant.kind).toBe(covers(funds, needed) ? "granted" : "short");
      expect(covers(funds, grant.freeMicro) && !covers(funds, grant.freeMicro + 1n)).toBe(true);
      if (grant.kind === "granted") return;
      expect(grant.neededMicro).toBe(needed);
      // Without the holds of other requests.
      const { posted, limits } = funds;
      const [least] = limits.toSorted((one, other) => (one.left < other.left ? -1 : 1));
      if (posted < needed) expect(grant.by).toBe("pool");
      else if (least && least.left < needed) expect(grant.by).toMatchObject({ left: least.left });
      else expect(grant.by).toBe("requests");
    }),
    { numRuns: 500 },
  );
});

test("a hold grants all the output that is usual, or as much as is free, and covers it", () => {
  fc.assert(
    fc.property(anyCase, ([prices, bounds, funds]) => {
      const grant = sizeHold(prices, bounds, funds);
      if (grant.kind === "short") return;
      const price = maxOutputPriceNano(prices);
      const granted = BigInt(grant.output) * price;
      const plain = leastInputNano(prices, bounds);
      expect(grant.output).toBeGreaterThanOrEqual(bounds.minOutput);
      // The limits bound the least that the request may cost, the pool all that it may.
      expect(covers(funds, ceil(plain + granted))).toBe(true);
      const full = mostInputNano(prices, bounds) + granted;
      expect(grant.amountMicro).toBe(least(ceil(full), funds.posted - funds.poolHeld));
      // 8,192 tokens, or what a quarter of the free credits covers.
      const quarter =
        price === 0n ? bounds.maxOutput : Number(nanoOf(grant.freeMicro) / 4n / price);
      const usual = Math.min(bounds.maxOutput, Math.max(8_192, bounds.minOutput, quarter));
      expect(grant.output).toBeLessThanOrEqual(usual);
      const isLess = grant.output < usual;
      if (isLess) expect(covers(funds, ceil(plain + granted + price))).toBe(false);
      const alone = {
        ...funds,
        poolHeld: 0n,
        limits: funds.limits.map(({ left }) => ({ left, held: 0n })),
      };
      const fits = covers(alone, ceil(full + BigInt(usual - grant.output) * price));
      expect(grant.reduced).toBe(isLess && !fits);
    }),
    { numRuns: 500 },
  );
});

test("a hold is recognised by the bounds that led to it, and by no others", () => {
  fc.assert(
    fc.property(anyCase, ([prices, bounds, funds]) => {
      const grant = sizeHold(prices, bounds, funds);
      if (grant.kind === "short") return;
      const hold = { amountMicro: grant.amountMicro, grantedOutput: grant.output };
      expect(isHoldOf(prices, bounds, hold)).toBe(true);
      const output = (minOutput: number, maxOutput: number) =>
        isHoldOf(prices, { ...bounds, minOutput, maxOutput }, hold);
      expect(output(grant.output, grant.output)).toBe(true);
      expect(output(grant.output + 1, grant.output + 1)).toBe(false);
      expect(output(0, grant.output - 1)).toBe(false);
      const amount = (amountMicro: bigint) => isHoldOf(prices, bounds, { ...hold, amountMicro });
      const outputNano = BigInt(grant.output) * maxOutputPriceNano(prices);
      const low = ceil(leastInputNano(prices, bounds) + outputNano);
      const high = ceil(mostInputNano(prices, bounds) + outputNano);
      expect([low - 1n, low, high, high + 1n].map(amount)).toEqual([false, true, true, false]);
    }),
  );
});

test("the largest hold is the cost of all input and output at their highest prices", () => {
  fc.assert(
    fc.property(anyPrices, anyBounds, (prices, bounds) => {
      const { maxOutput: output } = bounds;
      const most = mostInputNano(prices, bounds);
      const costs = [prices.output, prices.thinking].map((nano) =>
        ceil(most + BigInt(output) * nano),
      );
      expect(costs).toContain(maxHoldMicro(prices, bounds));
      for (const cost of costs) expect(cost <= maxHoldMicro(prices, bounds)).toBe(true);
    }),
  );
});

test("a caller who sets the cap to the least worth of each request before it pays all of them, while the pool has funds", () => {
  const use = fc.record({ bounds: anyCountedBounds, input: fc.nat(), output: fc.nat() });
  fc.assert(
    fc.property(anyPrices, anyAmount, fc.array(use, { maxLength: 8 }), (prices, funds, uses) => {
      let [posted, spent] = [funds, 0n];
      for (const { bounds, input: inputs, output: outputs } of uses) {
        const limit = spent + minHoldMicro(prices, bounds);
        const grant = sizeHold(prices, bounds, {
          posted,
          poolHeld: 0n,
          limits: [{ left: limit - spent, held: 0n }],
        });
        if (grant.kind === "short") {
          expect(grant.by).toBe("pool");
          continue;
        }
        const input = inputs % (bounds.input + 1);
        const used = usage({
          [fieldOf[bounds.mostExpensiveInput] ?? "input"]: input,
          output: outputs % (grant.output + 1),
        });
        const cost = costMicro(prices, used);
        const charged = least(cost, grant.amountMicro);
        // The pool alone bounds what is charged.
        expect(charged).toBe(least(cost, posted));
        // Beyond the cap goes what the count of one request was off.
        const off = mostInputNano(prices, bounds) - leastInputNano(prices, bounds);
        expect(spent + charged <= limit + ceil(off)).toBe(true);
        posted -= charged;
        spent += charged;
      }
    }),
  );
});

test("no usage within the bounds of a hold costs more than the hold, if the pool covers them", () => {
  fc.assert(
    fc.property(anyCase, fc.nat(), fc.nat(), ([prices, bounds, funds], inputs, outputs) => {
      const grant = sizeHold(prices, bounds, funds);
      if (grant.kind === "short") return;
      const input = inputs % (bounds.input + 1);
      const output = outputs % (grant.output + 1);
      const thinking = output >> 1;
      const long = bounds.mostExpensiveInput === InputCategory.CACHE_WRITE_1H ? input : 0;
      const short = bounds.mostExpensiveInput === InputCategory.CACHE_WRITE_5M ? input : 0;
      const used = usage({
        input: input - long - short,
        cacheWrite5m: short,
        cacheWrite1h: long,
        output: output - thinking,
        thinking,
      });
      const poolFree = funds.posted - funds.poolHeld;
      expect(least(costMicro(prices, used), poolFree) <= grant.amountMicro).toBe(true);
    }),
  );
});

test("output beyond 8,192 tokens is granted up to a quarter of the free credits, less than that up to all of them", () => {
  const prices = {
    input: 0n,
    output: 100_000n,
    cacheWrite5m: 0n,
    cacheWrite1h: 0n,
    cacheRead: 0n,
    thinking: 100_000n,
    webSearch: 0n,
  };
  const bounds = {
    input: 0,
    mostExpensiveInput: InputCategory.PLAIN,
    webSearches: 0,
    minOutput: 1_024,
    maxOutput: 128_000,
  };
  const grant = (tokens: number) =>
    sizeHold(prices, bounds, { posted: BigInt(tokens) * 100n, poolHeld: 0n });
  expect(grant(1_023)).toMatchObject({ kind: "short", by: "pool" });
  expect(grant(1_024)).toMatchObject({ output: 1_024 });
  expect(grant(8_000)).toMatchObject({ output: 8_000 });
  expect(grant(20_000)).toMatchObject({ output: 8_192 });
  expect(grant(40_000)).toMatchObject({ output: 10_000 });
  expect(grant(1_000_000)).toMatchObject({ output: 128_000 });
});

test("a grant is reduced if the credits would not cover the usual one without the holds of others", () => {
  const prices = {
    input: 10_000n,
    output: 100_000n,
    cacheWrite5m: 10_000n,
    cacheWrite1h: 10_000n,
    cacheRead: 1_000n,
    thinking: 100_000n,
    webSearch: 0n,
  };
  const bounds = {
    input: 1_000,
    mostExpensiveInput: InputCategory.PLAIN,
    webSearches: 0,
    minOutput: 1_024,
    maxOutput: 4_000,
  };
  const grant = (posted: bigint, poolHeld: bigint) =>
    sizeHold(prices, bounds, { posted, poolHeld });
  expect(grant(410_000n, 0n)).toMatchObject({ output: 4_000, reduced: false });
  expect(grant(400_000n, 0n)).toMatchObject({ output: 3_900, reduced: true });
  expect(grant(410_000n, 10_000n)).toMatchObject({ output: 3_900, reduced: false });
  const counted = { ...bounds, minInput: 500 };
  expect(sizeHold(prices, counted, { posted: 405_000n, poolHeld: 0n })).toMatchObject({
    output: 4_000,
    amountMicro: 405_000n,
  });
});

test("a request for no output holds its input only", () => {
  const prices = {
    input: 10_000n,
    output: 100_000n,
    cacheWrite5m: 12_000n,
    cacheWrite1h: 20_000n,
    cacheRead: 1_000n,
    thinking: 100_000n,
    webSearch: 0n,
  };
  const bounds = {
    input: 100,
    mostExpensiveInput: InputCategory.CACHE_WRITE_1H,
    webSearches: 0,
    minOutput: 0,
    maxOutput: 0,
  };
  expect(sizeHold(prices, bounds, { posted: 2_000n, poolHeld: 0n })).toMatchObject({
    kind: "granted",
    output: 0,
    amountMicro: 2_000n,
  });
  expect(sizeHold(prices, bounds, { posted: 1_999n, poolHeld: 0n }).kind).toBe("short");
});

test("a resized hold covers exactly the reported input and all the granted output", () => {
  fc.assert(
    fc.property(anyPrices, anyUsage, fc.nat(200_000), (prices, reported, granted) => {
      const amount = resizedHoldMicro(prices, reported, granted);
      const mostExpensive =
        prices.thinking > prices.output
          ? { output: 0, thinking: granted }
          : { output: granted, thinking: 0 };
      expect(costMicro(prices, usage({ ...reported, ...mostExpensive }))).toBe(amount);
    }),
  );
});
