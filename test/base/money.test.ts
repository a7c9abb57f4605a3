import fc from "fast-check";
import { expect, test } from "vitest";
import { credits, decimal, max, min, parseCredits, usd } from "../../src/base/money.ts";

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

test("the smaller and the larger of two amounts", () => {
  for (const [one, other] of [
    [1n, 2n],
    [2n, 1n],
    [-1n, 0n],
    [3n, 3n],
  ] as const)
    expect([min(one, other), max(one, other)]).toEqual([one, other].sort((a, b) => Number(a - b)));
});

test.for<[string, bigint | undefined]>([
  ["0", 0n],
  ["7", 7_000_000n],
  ["1.5", 1_500_000n],
  ["1.05", 1_050_000n],
  ["0.000001", 1n],
  ["999999999999.999999", 999_999_999_999_999_999n],
  ["1000000000000", undefined],
  ["1.0000001", undefined],
  ["1.", undefined],
  [".5", undefined],
  ["1,5", undefined],
  ["-1", undefined],
  ["1 ", undefined],
  [" 1", undefined],
  ["", undefined],
  ["1e3", undefined],
])("%j are %s micro-credits", ([text, micro]) => {
  expect(parseCredits(text)).toBe(micro);
});

test.for<[bigint, number, number, string]>([
  [0n, 8, 0, "0"],
  [120n, 2, 0, "1.2"],
  [120n, 2, 2, "1.20"],
  [5n, 2, 0, "0.05"],
  [-5n, 2, 2, "-0.05"],
  [100n, 2, 0, "1"],
  [7n, 0, 0, "7"],
])("%s units of %s places, with %s at least, are %s", ([units, places, least, text]) => {
  expect(decimal(units, places, least)).toBe(text);
});
