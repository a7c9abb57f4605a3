// Amounts as a person types them; numbers, amounts and times as the page writes them.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AlertSettingsSchema } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { KeySchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import {
  clock,
  compact,
  count,
  credits,
  day,
  dayOfYear,
  dollars,
  duration,
  exactClock,
  fieldDay,
  minutes,
  moment,
  month,
  parseCount,
  parseCredits,
  parseDollars,
  parseSignedCredits,
  percent,
  plainCredits,
  relative,
  rowTime,
  seconds,
  signedCredits,
  toDate,
} from "../../src/console/web/format.ts";
import { readCredits, readPack, readWhole } from "../../src/console/web/parts/bounds.ts";
import { exact } from "../../src/console/web/parts/decimals.ts";
import {
  type KeyFields,
  keyFieldsOf,
  noKeyFields,
  readKeyFields,
} from "../../src/console/web/parts/key-fields.ts";
import { parseTags, tagsText } from "../../src/console/web/parts/tags.ts";
import { anyTyped, within } from "../support/arbitraries.ts";

test.for<[string, bigint | undefined]>([
  ["5", 5_000_000n],
  ["-5", -5_000_000n],
  [" −1,200.5 ", -1_200_500_000n],
  ["-0", 0n],
  ["- 5", -5_000_000n],
  ["--5", undefined],
  ["-", undefined],
  ["+5", undefined],
  ["5-", undefined],
  ["", undefined],
])("%j with its sign is %s micro-credits", ([text, micro]) => {
  expect(parseSignedCredits(text)).toBe(micro);
});

test.for<[string, bigint | undefined]>([
  ["5", 5_000_000n],
  ["$5", 5_000_000n],
  [" $ 1,200.50", 1_200_500_000n],
  ["$$5", undefined],
  ["5$", undefined],
  ["-5", undefined],
  ["$", undefined],
  ["", undefined],
])("%j is %s micro-dollars", ([text, micro]) => {
  expect(parseDollars(text)).toBe(micro);
});

test.for<[string, number | undefined]>([
  ["0", 0],
  ["007", 7],
  [" 600 ", 600],
  ["1,200", 1_200],
  ["1,000,000", 1_000_000],
  ["999999999", 999_999_999],
  ["1000000000", undefined],
  ["1,000,000,000", undefined],
  ["12,34", undefined],
  ["1200,000", undefined],
  ["1.5", undefined],
  ["1e3", undefined],
  ["0x10", undefined],
  ["-1", undefined],
  ["ten", undefined],
  ["", undefined],
])("%j is the whole number %s", ([text, n]) => {
  expect(parseCount(text)).toBe(n);
});

test.for<[string, Record<string, string>]>([
  ["", {}],
  ["team=a", { team: "a" }],
  ["team=a,env=ci", { team: "a", env: "ci" }],
  [" team = a , env=ci", { team: "a", env: "ci" }],
  ["team=a=b", { team: "a=b" }],
  ["team", { team: "" }],
  ["team=", { team: "" }],
  ["team=a,", { team: "a" }],
])("%j are the tags %j", ([text, tags]) => {
  expect(parseTags(text)).toEqual(tags);
});

test("tags are written in the order of their keys", () => {
  expect(tagsText({ team: "a", env: "ci" })).toBe("env=ci, team=a");
  expect(parseTags(tagsText({ team: "a=b", env: "ci" }))).toEqual({ team: "a=b", env: "ci" });
});

/** The text with plain spaces. */
const inWords = (text: string) => text.replaceAll("\u00a0", " ");

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

  test("as a person writes it, grouped or not, is that amount", () => {
    fc.assert(
      fc.property(anyTyped, ({ text, micro }) => {
        expect(parseCredits(text)).toBe(micro);
      }),
    );
  });

  test("that the page wrote into a field, or of four digits, is read as it was", () => {
    fc.assert(
      fc.property(within(0n, 10n ** 21n - 1n), (one) => {
        expect(parseCredits(plainCredits(one))).toBe(one);
        const read = parseCredits(credits(one, 4));
        if (read === undefined) {
          expect(one >= 10n ** 21n - 50n).toBe(true);
          return;
        }
        expect(read % 100n).toBe(0n);
        expect(read - one <= 50n && one - read < 50n).toBe(true);
      }),
    );
  });
});

test.for<[bigint, string]>([
  [0n, "0"],
  [1n, "0.000001"],
  [100n, "0.0001"],
  [1_000_000n, "1"],
  [10_000_000n, "10"],
  [1_200_500_000n, "1200.5"],
])("a field shows %s micro-credits as %s", ([micro, text]) => {
  expect(plainCredits(micro)).toBe(text);
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

test.for<[number | bigint, string, string]>([
  [0, "0", "0"],
  [9_999, "9,999", "9,999"],
  [10_000, "10,000", "10.0 K"],
  [18_204n, "18,204", "18.2 K"],
  [41_650_000n, "41,650,000", "41.7 M"],
  [2_000_000_000n, "2,000,000,000", "2.0 B"],
])("%s is counted as %s, or %s in short", ([n, long, short]) => {
  expect([count(n), inWords(compact(n))]).toEqual([long, short]);
});

test.for<[number, string]>([
  [0, "0 %"],
  [0.0035, "0.35 %"],
  [-0.0035, "-0.35 %"],
  [0.09994, "9.99 %"],
  [0.1, "10 %"],
  [-0.1, "-10 %"],
  [0.126, "13 %"],
  [1, "100 %"],
])("a share of %d is %s", ([share, text]) => {
  expect(inWords(percent(share))).toBe(text);
});

const [minuteMs, hourMs] = [60_000, 3_600_000];
test.for<[number, string]>([
  [0, "0.00 s"],
  [840, "0.84 s"],
  [9_999, "10.00 s"],
  [10_000, "10 s"],
  [119_499, "119 s"],
  [119_500, "2 min"],
  [119 * minuteMs, "119 min"],
  [2 * hourMs, "2 h"],
  [2 * hourMs + 5 * minuteMs, "2 h 5 min"],
  [47 * hourMs + 59 * minuteMs, "47 h 59 min"],
  [48 * hourMs, "2 days"],
  [84 * hourMs, "4 days"],
])("%d ms take %s", ([ms, text]) => {
  expect(inWords(duration(ms))).toBe(text);
});

test("until the page knows a zone, moments are in UTC, of dates and of timestamps", () => {
  const date = new Date("2026-01-02T03:04:05.678Z");
  const timestamp = timestampFromDate(date);
  expect(toDate(timestamp)).toEqual(date);
  for (const at of [date, timestamp])
    expect([day(at), clock(at), moment(at)].map(inWords)).toEqual([
      "2 Jan 2026",
      "03:04 UTC",
      "2 Jan 2026, 03:04:05 UTC",
    ]);
  expect(inWords(moment(new Date("2026-12-31T23:59:59Z")))).toBe("31 Dec 2026, 23:59:59 UTC");
});

describe("a moment by the clock of a zone", () => {
  test.for<[string, string, string]>([
    // Summer begins: 02:00 to 03:00 does not exist.
    ["Europe/Berlin", "2026-03-29T00:59:59Z", "29 Mar 2026, 01:59:59 UTC+1"],
    ["Europe/Berlin", "2026-03-29T01:00:00Z", "29 Mar 2026, 03:00:00 UTC+2"],
    // Summer ends: 02:00 to 03:00 comes twice, and the two differ.
    ["Europe/Berlin", "2026-10-25T00:30:00Z", "25 Oct 2026, 02:30:00 UTC+2"],
    ["Europe/Berlin", "2026-10-25T01:30:00Z", "25 Oct 2026, 02:30:00 UTC+1"],
    ["America/New_York", "2026-11-01T05:30:00Z", "1 Nov 2026, 01:30:00 UTC−4"],
    ["America/New_York", "2026-11-01T06:30:00Z", "1 Nov 2026, 01:30:00 UTC−5"],
    // Half an hour of summer, quarters of an hour, another day and year.
    ["Australia/Lord_Howe", "2026-04-04T14:59:59Z", "5 Apr 2026, 01:59:59 UTC+11"],
    ["Australia/Lord_Howe", "2026-04-04T15:00:00Z", "5 Apr 2026, 01:30:00 UTC+10:30"],
    ["Asia/Kathmandu", "2026-12-31T18:15:00Z", "1 Jan 2027, 00:00:00 UTC+5:45"],
    ["America/St_Johns", "2026-01-01T00:00:00Z", "31 Dec 2025, 20:30:00 UTC−3:30"],
    ["Pacific/Kiritimati", "2026-09-09T10:00:00Z", "10 Sep 2026, 00:00:00 UTC+14"],
    ["UTC", "2026-11-22T00:00:00Z", "22 Nov 2026, 00:00:00 UTC"],
  ])("in %s, %s is %s", ([zone, at, text]) => {
    expect(inWords(moment(new Date(at), zone))).toBe(text);
  });

  test("names it as the whole has it, in each of its parts", () => {
    const at = new Date("2025-12-31T23:30:00Z");
    const texts = [day, dayOfYear, month, minutes, seconds, exactClock, clock, rowTime].map(
      (write) => inWords(write(at, "Asia/Kolkata")),
    );
    expect(texts).toEqual([
      ...[
        "1 Jan 2026",
        "1 Jan",
        "Jan 2026",
        "05:00",
        "05:00:00",
        "05:00:00 UTC+5:30",
        "05:00 UTC+5:30",
      ],
      expect.stringMatching(/^1 Jan( 2026)?, 05:00:00 UTC\+5:30$/),
    ]);
    expect(fieldDay(at)).toBe("2025-12-31");
  });

  test("tells the two hours that have one name apart, in a row of a list too", () => {
    const texts = ["2025-10-26T00:30:00Z", "2025-10-26T01:30:00Z"].map((at) =>
      inWords(rowTime(new Date(at), "Europe/Berlin")),
    );
    expect(texts).toEqual([
      expect.stringMatching(/^26 Oct( 2025)?, 02:30:00 UTC\+2$/),
      expect.stringMatching(/^26 Oct( 2025)?, 02:30:00 UTC\+1$/),
    ]);
  });
});

test.for<[number, string]>([
  [0, "just now"],
  [-59.9, "just now"],
  [0.1, "in less than a minute"],
  [59.9, "in less than a minute"],
  [60, "in 1 minute"],
  [-60, "1 minute ago"],
  [-119, "1 minute ago"],
  [3_599, "in 59 minutes"],
  [3_600, "in 1 hour"],
  [-86_399, "23 hours ago"],
  [-86_400, "1 day ago"],
  [3 * 86_400, "in 3 days"],
  [30 * 86_400, "in 1 month"],
  [-365 * 86_400, "1 year ago"],
])("%d seconds from now are %s", ([seconds, text]) => {
  const now = new Date("2026-11-22T12:00:00Z");
  expect(inWords(relative(new Date(now.getTime() + seconds * 1_000), now))).toBe(text);
});

test("a number outside of what its field holds is refused at the field, in words of the page", () => {
  const { requestsPerMinute: rate, monthlyCapMicrocredits: cap } = KeySchema.field;
  const { belowDays } = AlertSettingsSchema.field;
  expect([readWhole("", rate), readWhole(" 1,200 ", rate)]).toEqual([undefined, 1_200]);
  expect(readWhole("1000000", rate)).toBe(1_000_000);
  for (const text of ["-3", "−3", "1.5", "1000001", "12,00", "ten", "1e3"])
    expect(() => readWhole(text, rate)).toThrow(
      expect.objectContaining({
        field: "requests_per_minute",
        message: "A whole number from 0 to 1,000,000.",
      }),
    );
  expect(() => readWhole("-1", belowDays)).toThrow(
    expect.objectContaining({ field: "below_days" }),
  );
  expect(readCredits("9007199254.740992", cap)).toBe(2n ** 53n);
  for (const text of ["9007199254.740993", "-1"])
    expect(() => readCredits(text, cap)).toThrow(
      expect.objectContaining({ field: "monthly_cap_microcredits" }),
    );
});

test.for<[string, number | undefined]>([
  ["500", 500],
  ["1500", 1_500],
  ["100000", 100_000],
  ["100500", undefined],
  ["499", undefined],
  ["501", undefined],
  ["0", undefined],
  ["000000500", 500],
  ["0000000500", undefined],
  ...["", " 500", "500 ", "-500", "+500", "5e2", "500.0", "1,500", "0x1f4", "NaN"].map(
    (text): [string, undefined] => [text, undefined],
  ),
])("the pack %j of an address is %j cents", ([text, cents]) => {
  expect(readPack(text, 100_000)).toBe(cents);
});

describe("the fields of a key", () => {
  const at = (text: string) => timestampFromDate(new Date(text));
  const lists = { allowedModels: [], allowedAddresses: [], tags: {} };
  const empty = { name: "", ...lists, accountReader: false };
  test.for<[Partial<KeyFields>, object]>([
    [{}, empty],
    [
      { name: "  ci  ", reader: true },
      { ...empty, name: "ci", accountReader: true },
    ],
    [{ perMinute: "1,200" }, { ...empty, requestsPerMinute: 1_200 }],
    [{ perMinute: "0" }, { ...empty, requestsPerMinute: 0 }],
    [{ cap: " 12.5 " }, { ...empty, monthlyCapMicrocredits: 12_500_000n }],
    [{ cap: "0" }, { ...empty, monthlyCapMicrocredits: 0n }],
    // The dollars only stand beside the credits.
    [{ capDollars: "7" }, empty],
    [
      { models: ["a", "b"], hasAllModels: false },
      { ...empty, allowedModels: ["a", "b"] },
    ],
    [{ models: ["a"], hasAllModels: true }, empty],
    [{ tags: "team=a, env=ci" }, { ...empty, tags: { team: "a", env: "ci" } }],
    // The last day is a day of the key.
    [{ expires: "2026-12-31" }, { ...empty, expiresAt: at("2027-01-01T00:00:00Z") }],
    [{ expires: "2028-02-28" }, { ...empty, expiresAt: at("2028-02-29T00:00:00Z") }],
  ])("%o make the request %o", ([fields, request]) => {
    expect(readKeyFields({ ...noKeyFields, ...fields })).toStrictEqual(request);
  });

  test.for<[Partial<KeyFields>, string]>([
    [{ perMinute: "1.5" }, "requests_per_minute"],
    [{ perMinute: "-1" }, "requests_per_minute"],
    [{ cap: "1.2345678" }, "monthly_cap_microcredits"],
    [{ cap: "much" }, "monthly_cap_microcredits"],
    [{ expires: "2026-02-30" }, "expires_at"],
    [{ expires: "tomorrow" }, "expires_at"],
  ])("%o have a mistake at %s", ([fields, field]) => {
    expect(() => readKeyFields({ ...noKeyFields, ...fields })).toThrow(
      expect.objectContaining({ field }),
    );
  });

  test("are those of a key that has them, whatever it lacks", () => {
    const fields = {
      ...{ name: "ci", requestsPerMinute: 7, monthlyCapMicrocredits: 2_500_000n },
      ...{ dailyCapMicrocredits: 1_000_000n, weeklyCapMicrocredits: 0n, requestsAtOnce: 3 },
      ...{ allowedModels: ["a"], accountReader: true, expiresAt: at("2027-01-01T00:00:00Z") },
      allowedAddresses: ["192.0.2.0/24", "2001:db8::1"],
      tags: { env: "ci", team: "a" },
    };
    const typed = keyFieldsOf(create(KeySchema, fields));
    expect(typed).toEqual({
      ...{ name: "ci", perMinute: "7", cap: "2.5", capDollars: "0.0125", expires: "2026-12-31" },
      ...{ hasAllModels: false, models: ["a"], reader: true },
      ...{ daily: "1", weekly: "0", total: "", atOnce: "3" },
      addresses: "192.0.2.0/24\n2001:db8::1",
      tags: "env=ci, team=a",
    });
    expect(readKeyFields(typed)).toStrictEqual(fields);
    expect(keyFieldsOf(create(KeySchema, {}))).toEqual(noKeyFields);
  });
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
