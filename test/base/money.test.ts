import fc from "fast-check";
import { expect, test } from "vitest";
import { credits, usd } from "../../src/base/money.ts";

const cases = [
  { micro: 0n, credits: "0", usd: "0.00" },
  { micro: 1n, credits: "0.000001", usd: "0.000000005" },
  { micro: 1_500_000n, credits: "1.5", usd: "0.0075" },
  { micro: 1_000_000_000n, credits: "1000", usd: "5.00" },
  { micro: -2_000_001n, credits: "-2.000001", usd: "-0.010000005" },
  { micro: 9_007_199_254_740_993n, credits: "9007199254.740993", usd: "45035996.273704965" },
];
for (const { micro, credits: inCredits, usd: inUsd } of cases) {
  test(`${micro} micro-credits are ${inCredits} credits, ${inUsd} USD`, () => {
    expect([credits(micro), usd(micro)]).toEqual([inCredits, inUsd]);
  });
}

test("a decimal reads back as the very integer it was made of", () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n }), (micro) => {
      const [whole = "", fraction = ""] = credits(micro).split(".");
      expect(BigInt(whole + fraction.padEnd(6, "0"))).toBe(micro);
    }),
  );
});
