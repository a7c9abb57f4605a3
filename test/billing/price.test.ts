import { createHash } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import {
  costMicro,
  maxInputPriceMicro,
  maxOutputPriceMicro,
  priceVersion,
} from "../../src/billing/price.ts";
import { usage } from "../support/ledger.ts";
import { anyPrices, anyUsage } from "../support/samples/prices.ts";

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
});

test("no token costs more than the highest price of its side", () => {
  fc.assert(
    fc.property(anyPrices, (prices) => {
      const output = maxOutputPriceMicro(prices);
      expect([prices.output, prices.thinking].every((one) => one <= output)).toBe(true);
      const long = maxInputPriceMicro(prices, InputCategory.CACHE_WRITE_1H);
      const short = maxInputPriceMicro(prices, InputCategory.CACHE_WRITE_5M);
      const plain = maxInputPriceMicro(prices, InputCategory.UNSPECIFIED);
      expect([prices.input, prices.cacheRead].every((one) => one <= plain)).toBe(true);
      expect(short >= plain && short >= prices.cacheWrite5m).toBe(true);
      expect(long >= short && long >= prices.cacheWrite1h).toBe(true);
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
      expect(priceVersion("m", one).priceVersion).toBe(priceVersion("m", { ...one }).priceVersion);
      expect(priceVersion("m", one).priceVersion === priceVersion("m", other).priceVersion).toBe(
        isSame,
      );
      expect(priceVersion("m", one).priceVersion).not.toBe(
        priceVersion("another", one).priceVersion,
      );
    }),
  );
});
