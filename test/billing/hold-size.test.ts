import fc from "fast-check";
import { expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  type Funds,
  isHoldOf,
  maxHoldMicro,
  maxInputCostMicro,
  minHoldMicro,
  resizedHoldMicro,
  sizeHold,
} from "../../src/billing/hold-size.ts";
import { costMicro, maxInputPriceMicro, maxOutputPriceMicro } from "../../src/billing/price.ts";
import { usage } from "../support/ledger.ts";
import { anyBounds, anyCountedBounds, anyPrices, anyUsage } from "../support/samples/prices.ts";

const credits = fc.oneof(
  fc.bigInt({ min: 0n, max: 10n ** 9n }),
  fc.bigInt({ min: 0n, max: 10n ** 18n }),
);
const anyFunds: fc.Arbitrary<Funds> = fc
  .record({
    posted: credits,
    poolHeld: credits,
    cap: fc.option(fc.record({ limit: credits, spent: credits, held: credits })),
  })
  .map(({ posted, poolHeld, cap }) => ({ posted, poolHeld, ...(cap && { cap }) }));

const least = (one: bigint, other: bigint) => (one < other ? one : other);

/** True when the funds cover `micro`, computed the simple way. */
function covers({ posted, poolHeld, cap }: Funds, micro: bigint): boolean {
  return (
    posted - poolHeld >= micro && (cap === undefined || cap.limit - cap.spent - cap.held >= micro)
  );
}

test("a hold grants between the minimum and the maximum output, and never takes more than is free", () => {
  fc.assert(
    fc.property(anyPrices, anyBounds, anyFunds, (prices, bounds, funds) => {
      const grant = sizeHold(prices, bounds, funds);
      if (grant.kind === "short") return;
      expect(grant.output).toBeGreaterThanOrEqual(bounds.minOutput);
      expect(grant.output).toBeLessThanOrEqual(bounds.maxOutput);
      expect(covers(funds, grant.amountMicro)).toBe(true);
    }),
  );
});

test("a request is short exactly if the free credits do not cover its minimum, and `held` means that waiting helps", () => {
  fc.assert(
    fc.property(anyPrices, anyBounds, anyFunds, (prices, bounds, funds) => {
      const needed =
        maxInputCostMicro(prices, bounds) + BigInt(bounds.minOutput) * maxOutputPriceMicro(prices);
      const grant = sizeHold(prices, bounds, funds);
      expect(grant.kind).toBe(covers(funds, needed) ? "granted" : "short");
      if (grant.kind === "granted") return;
      const { posted, cap } = funds;
      // Without the holds of other requests.
      const isEverEnough =
        posted >= needed && (cap === undefined || cap.limit - cap.spent >= needed);
      expect(grant.held).toBe(isEverEnough);
      expect(grant.neededMicro).toBe(needed);
      if (!grant.held) expect(grant.of).toBe(posted < needed ? "pool" : "cap");
    }),
  );
});

test("a hold is recognised by the bounds that led to it, and an exact one by no other input", () => {
  fc.assert(
    fc.property(
      anyPrices,
      fc.oneof(anyBounds, anyCountedBounds),
      anyFunds,
      (prices, bounds, funds) => {
        const grant = sizeHold(prices, bounds, funds);
        if (grant.kind === "short") return;
        const hold = { amountMicro: grant.amountMicro, grantedOutput: grant.output };
        expect(isHoldOf(prices, bounds, hold)).toBe(true);
        const outputs = { ...bounds, minOutput: grant.output + 1, maxOutput: grant.output + 1 };
        expect(isHoldOf(prices, outputs, hold)).toBe(false);
        if (
          bounds.minInput !== undefined ||
          maxInputPriceMicro(prices, bounds.mostExpensiveInput) === 0n
        )
          return;
        expect(isHoldOf(prices, { ...bounds, input: bounds.input + 1 }, hold)).toBe(false);
      },
    ),
  );
});

test("where the input is uncertain, a request is admitted exactly if its least worth is free, and holds up to all that the pool has free", () => {
  fc.assert(
    fc.property(anyPrices, anyCountedBounds, anyFunds, (prices, bounds, funds) => {
      const output = maxOutputPriceMicro(prices);
      const plain =
        BigInt(bounds.minInput) * maxInputPriceMicro(prices, InputCategory.UNSPECIFIED) +
        BigInt(bounds.webSearches) * prices.webSearch;
      const worth = plain + BigInt(bounds.minOutput) * output;
      const grant = sizeHold(prices, bounds, funds);
      expect(grant.kind).toBe(covers(funds, worth) ? "granted" : "short");
      if (grant.kind === "short") return;
      const granted = BigInt(grant.output) * output;
      // The cap bounds the least that the request may cost.
      expect(covers(funds, plain + granted)).toBe(true);
      expect(grant.amountMicro).toBeGreaterThanOrEqual(plain + granted);
      const full = maxInputCostMicro(prices, bounds) + granted;
      const poolFree = funds.posted - funds.poolHeld;
      expect(grant.amountMicro).toBe(least(full, poolFree));
    }),
  );
});

test("whoever sets the cap to the least worth of each request before it pays all of them, while the pool has funds", () => {
  const use = fc.record({ bounds: anyCountedBounds, input: fc.nat(), output: fc.nat() });
  fc.assert(
    fc.property(anyPrices, credits, fc.array(use, { maxLength: 8 }), (prices, funds, uses) => {
      let [posted, spent] = [funds, 0n];
      for (const { bounds, input: inputs, output: outputs } of uses) {
        const limit = spent + minHoldMicro(prices, bounds);
        const grant = sizeHold(prices, bounds, {
          posted,
          poolHeld: 0n,
          cap: { limit, spent, held: 0n },
        });
        if (grant.kind === "short") {
          expect(grant.of).toBe("pool");
          continue;
        }
        const input = inputs % (bounds.input + 1);
        const used = usage({
          [["input", "cacheWrite5m", "cacheWrite1h"][bounds.mostExpensiveInput] ?? ""]: input,
          output: outputs % (grant.output + 1),
        });
        const cost = costMicro(prices, used);
        const charged = least(cost, grant.amountMicro);
        // The pool alone bounds what is charged.
        expect(charged).toBe(least(cost, posted));
        // Beyond the cap goes what the count of one request was off.
        const leastInput =
          minHoldMicro(prices, bounds) - BigInt(bounds.minOutput) * maxOutputPriceMicro(prices);
        const off = maxInputCostMicro(prices, bounds) - leastInput;
        expect(spent + charged <= limit + off).toBe(true);
        posted -= charged;
        spent += charged;
      }
    }),
  );
});

test("no usage within the bounds of a hold costs more than the hold", () => {
  fc.assert(
    fc.property(
      anyPrices,
      anyBounds,
      anyFunds,
      fc.nat(),
      fc.nat(),
      (prices, bounds, funds, inputs, outputs) => {
        const grant = sizeHold(prices, bounds, funds);
        if (grant.kind === "short") return;
        const input = inputs % (bounds.input + 1);
        const output = outputs % (grant.output + 1);
        const thinking = output >> 1;
        const long = bounds.mostExpensiveInput === 2 ? input : 0;
        const short = bounds.mostExpensiveInput === 1 ? input : 0;
        const plain = input - long - short;
        const used = usage({
          input: plain,
          cacheWrite5m: short,
          cacheWrite1h: long,
          output: output - thinking,
          thinking,
        });
        expect(costMicro(prices, used) <= grant.amountMicro).toBe(true);
      },
    ),
  );
});

test("output beyond 8,192 tokens is granted up to a quarter of the free credits, less than that up to all of them", () => {
  const prices = {
    input: 0n,
    output: 100n,
    cacheWrite5m: 0n,
    cacheWrite1h: 0n,
    cacheRead: 0n,
    thinking: 100n,
    webSearch: 1_000n,
  };
  const bounds = {
    input: 0,
    mostExpensiveInput: InputCategory.UNSPECIFIED,
    webSearches: 0,
    minOutput: 1_024,
    maxOutput: 128_000,
  };
  const grant = (tokens: number) =>
    sizeHold(prices, bounds, { posted: BigInt(tokens) * 100n, poolHeld: 0n });
  expect(grant(1_023)).toMatchObject({ kind: "short", of: "pool", held: false });
  expect(grant(1_024)).toMatchObject({ output: 1_024 });
  expect(grant(8_000)).toMatchObject({ output: 8_000 });
  expect(grant(20_000)).toMatchObject({ output: 8_192 });
  expect(grant(40_000)).toMatchObject({ output: 10_000 });
  expect(grant(1_000_000)).toMatchObject({ output: 128_000 });
});

test("a grant is reduced if the credits would not cover the usual one without the holds of others", () => {
  const prices = {
    input: 10n,
    output: 100n,
    cacheWrite5m: 10n,
    cacheWrite1h: 10n,
    cacheRead: 1n,
    thinking: 100n,
    webSearch: 1_000n,
  };
  const bounds = {
    input: 1_000,
    mostExpensiveInput: InputCategory.UNSPECIFIED,
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
    input: 10n,
    output: 100n,
    cacheWrite5m: 12n,
    cacheWrite1h: 20n,
    cacheRead: 1n,
    thinking: 100n,
    webSearch: 1_000n,
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

test("a hold covers every web search that its request allows", () => {
  fc.assert(
    fc.property(anyPrices, anyBounds, fc.nat(1_000), (prices, bounds, webSearches) => {
      const without = { ...bounds, webSearches: 0 };
      const withSearches = { ...bounds, webSearches };
      const searchesMicro = prices.webSearch * BigInt(webSearches);
      expect(minHoldMicro(prices, withSearches)).toBe(
        minHoldMicro(prices, without) + searchesMicro,
      );
      expect(maxHoldMicro(prices, withSearches)).toBe(
        maxHoldMicro(prices, without) + searchesMicro,
      );
    }),
  );
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
