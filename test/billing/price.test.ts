import { createHash } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { tokenCategories } from "../../src/base/token-categories.ts";
import {
  chargedUsage,
  costMicro,
  costsUpTo,
  maxInputPriceMicro,
  maxOutputPriceMicro,
  priceVersion,
} from "../../src/billing/price.ts";
import { anyPrices, anyUsage, beside } from "../support/arbitraries.ts";
import { usage } from "../support/ledger.ts";

test("a cost is the exact sum of tokens times price, however large", () => {
  fc.assert(
    fc.property(anyPrices, anyUsage, (prices, used) => {
      // Written out by category, in whole numbers throughout.
      const expected =
        BigInt(used.input) * prices.input +
        BigInt(used.output) * prices.output +
        BigInt(used.cacheWrite5m) * prices.cacheWrite5m +
        BigInt(used.cacheWrite1h) * prices.cacheWrite1h +
        BigInt(used.cacheRead) * prices.cacheRead +
        BigInt(used.thinking) * prices.thinking +
        BigInt(used.webSearches) * prices.webSearch;
      expect(costMicro(prices, used)).toBe(expected);
    }),
  );
});

test("a negative count never lowers a cost", () => {
  const prices = {
    input: 10n,
    output: 50n,
    cacheWrite5m: 12n,
    cacheWrite1h: 20n,
    cacheRead: 1n,
    thinking: 60n,
    webSearch: 2_000n,
  };
  expect(costMicro(prices, { ...usage({ output: 2 }), input: -5 })).toBe(100n);
  expect(costMicro(prices, { ...usage({ output: 2 }), webSearches: -5 })).toBe(100n);
});

test("what a hold covers first is input, then cache, thinking and output, each with those before", () => {
  fc.assert(
    fc.property(anyPrices, anyUsage, (prices, used) => {
      const none = { output: 0, thinking: 0, cacheWrite5m: 0, cacheWrite1h: 0, cacheRead: 0 };
      expect(costsUpTo(prices, used)).toEqual({
        inputMicro: costMicro(prices, { ...used, ...none }),
        withCacheMicro: costMicro(prices, { ...used, output: 0, thinking: 0 }),
        withThinkingMicro: costMicro(prices, { ...used, output: 0 }),
        allMicro: costMicro(prices, used),
      });
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
      expect(maxOutputPriceMicro(prices)).toBe(dearest(output, thinking));
      const most = (category: InputCategory) => maxInputPriceMicro(prices, category);
      expect(most(InputCategory.UNSPECIFIED)).toBe(dearest(input, cacheRead));
      expect(most(InputCategory.CACHE_WRITE_5M)).toBe(dearest(input, cacheRead, cacheWrite5m));
      expect(most(InputCategory.CACHE_WRITE_1H)).toBe(
        dearest(input, cacheRead, cacheWrite5m, cacheWrite1h),
      );
    }),
  );
});

test("a price without web searches has the id that it had before there were any", () => {
  const tokens = { input: 10n, output: 50n, cacheWrite5m: 12n, cacheWrite1h: 20n, cacheRead: 1n };
  const { priceVersion: id } = priceVersion("m", { ...tokens, thinking: 60n, webSearch: 0n });
  const hash = createHash("sha256").update("m|10|50|60|12|20|1").digest("hex");
  expect(id).toBe(`price_${hash.slice(0, 24)}`);
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
