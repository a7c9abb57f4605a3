import { createHash } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { costMicro, costsUpTo, type Prices } from "../../src/base/cost.ts";
import { type TokenCategory, tokenCategories } from "../../src/base/token-categories.ts";
import {
  chargedUsage,
  maxInputPriceNano,
  maxOutputPriceNano,
  priceVersion,
} from "../../src/billing/price.ts";
import { anyPrices, anyUsage, beside } from "../support/arbitraries.ts";
import { pricesOf, usage } from "../support/ledger.ts";

test("a cost is the sum of tokens times price, however large, rounded up once", () => {
  fc.assert(
    fc.property(anyPrices, anyUsage, (prices, used) => {
      // Written out by category, in whole numbers throughout.
      const nano =
        BigInt(used.input) * prices.input +
        BigInt(used.output) * prices.output +
        BigInt(used.cacheWrite5m) * prices.cacheWrite5m +
        BigInt(used.cacheWrite1h) * prices.cacheWrite1h +
        BigInt(used.cacheRead) * prices.cacheRead +
        BigInt(used.thinking) * prices.thinking +
        BigInt(used.webSearches) * prices.webSearch * 1000n;
      const cost = costMicro(prices, used);
      expect(cost * 1000n - nano >= 0n && cost * 1000n - nano < 1000n).toBe(true);
    }),
  );
});

test("a negative count never lowers a cost", () => {
  const prices = {
    input: 10_000n,
    output: 50_000n,
    cacheWrite5m: 12_000n,
    cacheWrite1h: 20_000n,
    cacheRead: 1_000n,
    thinking: 60_000n,
    webSearch: 2_000n,
  };
  expect(costMicro(prices, { ...usage({ output: 2 }), input: -5 })).toBe(100n);
  expect(costMicro(prices, { ...usage({ output: 2 }), webSearches: -5 })).toBe(100n);
});

test("what a hold covers first is input, then cache, thinking and output, each rounded down", () => {
  fc.assert(
    fc.property(anyPrices, anyUsage, (prices, used) => {
      const part = (...nano: bigint[]) => nano.reduce((sum, one) => sum + one, 0n) / 1000n;
      const of = (category: TokenCategory) => BigInt(used[category]) * prices[category];
      const input = part(of("input")) + BigInt(used.webSearches) * prices.webSearch;
      const cache = part(of("cacheWrite5m"), of("cacheWrite1h"), of("cacheRead"));
      const thinking = part(of("thinking"));
      const cost = costMicro(prices, used);
      expect(costsUpTo(prices, used)).toEqual({
        inputMicro: input,
        withCacheMicro: input + cache,
        withThinkingMicro: input + cache + thinking,
        allMicro: cost,
      });
      // The output has the rest.
      const rest = cost - input - cache - thinking - part(of("output"));
      expect(rest >= 0n && rest < 5n).toBe(true);
      const negative = { ...used, input: -1, cacheRead: -1 };
      expect(costsUpTo(prices, negative).allMicro).toBe(costMicro(prices, negative));
    }),
  );
});

test("output is charged up to the grant, thinking first, and all else whole", () => {
  const anyCase = anyUsage.chain((used) => {
    const granted = beside(0n, BigInt(used.thinking), BigInt(used.thinking + used.output));
    return fc.tuple(fc.constant(used), fc.oneof(granted.map(Number), fc.nat(5_000)));
  });
  fc.assert(
    fc.property(anyCase, ([used, granted]) => {
      const charged = chargedUsage(used, granted);
      // The same object where all of it is charged.
      expect(charged === used).toBe(used.output + used.thinking <= granted);
      const { output, thinking, ...input } = charged;
      const { output: _, thinking: __, ...reported } = used;
      expect(input).toEqual(reported);
      expect(thinking).toBe(Math.min(granted, used.thinking));
      expect(output).toBe(Math.min(granted - thinking, used.output));
    }),
  );
});

test("a side of a request costs as much as the most expensive of its tokens", () => {
  const dearest = (...prices: bigint[]) => prices.sort((a, b) => (a < b ? 1 : -1))[0];
  fc.assert(
    fc.property(anyPrices, (prices) => {
      const { input, output, thinking, cacheRead, cacheWrite5m, cacheWrite1h } = prices;
      expect(maxOutputPriceNano(prices)).toBe(dearest(output, thinking));
      const most = (category: InputCategory) => maxInputPriceNano(prices, category);
      expect(most(InputCategory.PLAIN)).toBe(dearest(input, cacheRead));
      expect(most(InputCategory.CACHE_WRITE_5M)).toBe(dearest(input, cacheRead, cacheWrite5m));
      expect(most(InputCategory.CACHE_WRITE_1H)).toBe(
        dearest(input, cacheRead, cacheWrite5m, cacheWrite1h),
      );
    }),
  );
});

test("a price of whole micro-credits without web searches has the id that it always had", () => {
  const tokens = { input: 10n, output: 50n, cacheWrite5m: 12n, cacheWrite1h: 20n, cacheRead: 1n };
  const idOf = (prices: Prices) => priceVersion("m", prices).priceVersion;
  const hashOf = (text: string) => createHash("sha256").update(text).digest("hex").slice(0, 24);
  const whole = pricesOf({ ...tokens, thinking: 60n, webSearch: 0n });
  expect(idOf(whole)).toBe(`price_${hashOf("m|10|50|60|12|20|1")}`);
  const finer = { ...whole, cacheRead: 28n };
  expect(idOf(finer)).toBe(`price_${hashOf("m|10|50|60|12|20|0.028")}`);
});

test("the id of a price version depends on its content only, and changes with every part of it", () => {
  fc.assert(
    fc.property(anyPrices, anyPrices, (one, other) => {
      const isSame = Object.entries(one).every(
        ([category, price]) => Reflect.get(other, category) === price,
      );
      const version = priceVersion("m", one);
      expect(version.priceVersion).toMatch(/^price_[0-9a-f]{24}$/);
      for (const category of tokenCategories) expect(version[category]).toBe(one[category]);
      expect(version.priceVersion).toBe(priceVersion("m", { ...one }).priceVersion);
      expect(priceVersion("m", one).priceVersion === priceVersion("m", other).priceVersion).toBe(
        isSame,
      );
      expect(priceVersion("m", one).priceVersion).not.toBe(
        priceVersion("another", one).priceVersion,
      );
      const dearer = { ...one, webSearch: one.webSearch + 1n };
      expect(priceVersion("m", one).priceVersion).not.toBe(priceVersion("m", dearer).priceVersion);
    }),
  );
});
