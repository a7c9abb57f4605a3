// Amounts as a person types them, and as the page writes them.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AlertSettingsSchema } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { KeySchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  compact,
  credits,
  day,
  dollars,
  duration,
  moment,
  parseCredits,
  percent,
  plainCredits,
  signedCredits,
} from "../../src/console/web/format.ts";
import { readCredits, readWhole } from "../../src/console/web/parts/bounds.ts";
import { exact } from "../../src/console/web/parts/decimals.ts";

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
  [-1_000_000n, "−1.00", "−1.0000", "−$0.01"],
  [-49n, "0.00", "0.0000", "$0.00"],
  [6_412_080_000n, "6,412.08", "6,412.0800", "$32.06"],
  [123_456_789_123_456n, "123,456,789.12", "123,456,789.1235", "$617,283.95"],
])("%s micro-credits are written as %s, %s and %s", ([micro, two, four, money]) => {
  expect([credits(micro), credits(micro, 4), dollars(micro)]).toEqual([two, four, money]);
});

test("a number outside of what its field holds is refused at the field, in words of the page", () => {
  const { requestsPerMinute: rate, monthlyCapMicrocredits: cap } = KeySchema.field;
  const { belowDays } = AlertSettingsSchema.field;
  expect([readWhole("", rate), readWhole(" 1,200 ", rate)]).toEqual([undefined, 1_200]);
  expect(readWhole("4294967295", rate)).toBe(4_294_967_295);
  for (const text of ["-3", "−3", "1.5", "4294967296", "12,00", "ten", "1e3"])
    expect(() => readWhole(text, rate)).toThrow(
      expect.objectContaining({
        field: "requests_per_minute",
        message: "A whole number from 0 to 4,294,967,295.",
      }),
    );
  expect(() => readWhole("-1", belowDays)).toThrow(
    expect.objectContaining({ field: "below_days" }),
  );
  expect(readCredits("9223372036854.775807", cap)).toBe(2n ** 63n - 1n);
  for (const text of ["9223372036854.775808", "-1"])
    expect(() => readCredits(text, cap)).toThrow(
      expect.objectContaining({ field: "monthly_cap_microcredits" }),
    );
});

test("amounts have one minus, and one form with their sign", () => {
  const texts = [credits(-5_000_000n), dollars(-5_000_000n), exact(-5_000_000n)];
  expect(texts).toEqual(["−5.00", "−$0.03", "−5.00"]);
  expect([signedCredits(-12_500_000n), signedCredits(200_000_000n)]).toEqual(["−12.50", "+200.00"]);
});

test("nothing breaks between a number and its unit, nor within a date", () => {
  const at = new Date("2026-11-22T14:02:31Z");
  for (const text of [
    compact(41_700_000),
    percent(0.0035),
    duration(840),
    duration(7_500_000),
    day(at),
  ])
    expect(text).toMatch(/^[^ ]+\u00a0[^ ]+$/);
  expect(moment(at).split(" ")).toEqual(["22\u00a0Nov\u00a02026,", "14:02:31\u00a0UTC"]);
});
