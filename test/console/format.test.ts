// Amounts as a person types them, and as the page writes them.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { credits, dollars, parseCredits, plainCredits } from "../../src/console/web/format.ts";

describe("a typed amount", () => {
  test.for<[string, bigint]>([
    ["1.5", 1_500_000n],
    ["1.05", 1_050_000n],
    ["1.000005", 1_000_005n],
    ["0.000001", 1n],
    ["1.", 1_000_000n],
    ["0", 0n],
    ["007", 7_000_000n],
    ["1200.5", 1_200_500_000n],
    ["1,200.5", 1_200_500_000n],
    ["1,000", 1_000_000_000n],
    ["12,345,678", 12_345_678_000_000n],
    ["  25 ", 25_000_000n],
    ["999999999999999", 999_999_999_999_999_000_000n],
    ["999,999,999,999,999.999999", 999_999_999_999_999_999_999n],
  ])("%s is %s micro-credits", ([text, micro]) => {
    expect(parseCredits(text)).toBe(micro);
  });

  const refused = [
    ...["1,5", "1.000,50", "1,50.0", "10,00", "1,0000", ",5", "1,", "1,,000", "1000,000"],
    ...[".5", "", " ", "-1", "+1", "1e3", "0x1", "$5", "1 200", "1.0000001", "1.2.3", "ten"],
    ...["1000000000000000", "1,000,000,000,000,000", "١"],
  ];
  test.for(refused)("%j is no amount", (text) => {
    expect(parseCredits(text)).toBeUndefined();
  });

  test("that the page wrote into a field is read as it was", () => {
    const micro = fc.bigInt({ min: 0n, max: 10n ** 21n - 1n });
    fc.assert(
      fc.property(micro, (one) => {
        expect(parseCredits(plainCredits(one))).toBe(one);
      }),
    );
  });

  test("of four digits that the page wrote is that amount, rounded", () => {
    const micro = fc.bigInt({ min: 0n, max: 10n ** 18n });
    fc.assert(
      fc.property(micro, (one) => {
        const read = parseCredits(credits(one, 4)) ?? -1n;
        expect(read % 100n).toBe(0n);
        expect(read - one <= 50n && one - read < 50n).toBe(true);
      }),
    );
  });
});

test.for<[bigint, string, string, string]>([
  [0n, "0.00", "0.0000", "$0.00"],
  [49n, "0.00", "0.0000", "$0.00"],
  [50n, "0.00", "0.0001", "$0.00"],
  [4_999n, "0.00", "0.0050", "$0.00"],
  [5_000n, "0.01", "0.0050", "$0.00"],
  [999_999n, "1.00", "1.0000", "$0.00"],
  [1_000_000n, "1.00", "1.0000", "$0.01"],
  [-1_000_000n, "-1.00", "-1.0000", "-$0.01"],
  [-49n, "0.00", "0.0000", "$0.00"],
  [6_412_080_000n, "6,412.08", "6,412.0800", "$32.06"],
  [123_456_789_123_456n, "123,456,789.12", "123,456,789.1235", "$617,283.95"],
])("%s micro-credits are written as %s, %s and %s", ([micro, two, four, money]) => {
  expect([credits(micro), credits(micro, 4), dollars(micro)]).toEqual([two, four, money]);
});
