// The arithmetic of the console's figures, without a browser: bars of a chart, ranges of a report,
// a list of charges that grows at both ends, and exact decimals.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Outcome, ReceiptSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { UsageTotalSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import {
  ListChargesResponseSchema,
  UsageRowSchema,
  UsageSumsSchema,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { firstEventBoundsMs } from "../../src/base/shown-figures.ts";
import { fieldDay } from "../../src/console/web/format.ts";
import { moneyIn } from "../../src/console/web/pages/unit.ts";
import {
  addNewest,
  addOlder,
  begin,
  durationOf,
  firstEventOf,
} from "../../src/console/web/parts/charge-list.ts";
import {
  addDecimals,
  countdown,
  exact,
  groupDigits,
  halfOf,
  isZero,
} from "../../src/console/web/parts/decimals.ts";
import { noRefusals, notKept } from "../../src/console/web/parts/refusals-kept.ts";
import {
  barsOf,
  nextSpan,
  readableSpan,
  type Span,
  startOf,
  ticksUpTo,
  totalOf,
} from "../../src/console/web/parts/timeline.ts";
import {
  addSums,
  type Compared,
  categoryBars,
  changeOf,
  dayOf,
  daysOfMonth,
  edgeOf,
  edgeText,
  failuresOf,
  firstEventWithin,
  hiddenIn,
  isWithin,
  lastDays,
  type Measure,
  namedBars,
  type Period,
  planOf,
  type Range,
  rangeOf,
  savedIn,
  sharesOf,
  splitSums,
  type TimedSums,
} from "../../src/console/web/parts/usage-report.ts";

const now = new Date("2026-11-22T14:02:31Z");
const hourMs = 3_600_000;

describe("time in charts", () => {
  test.each<[Span, string, string]>([
    ["hour", "2026-11-22T14:00:00.000Z", "2026-11-22T15:00:00.000Z"],
    ["day", "2026-11-22T00:00:00.000Z", "2026-11-23T00:00:00.000Z"],
    // 22 November 2026 is a Sunday: the last day of its week.
    ["week", "2026-11-16T00:00:00.000Z", "2026-11-23T00:00:00.000Z"],
    ["month", "2026-11-01T00:00:00.000Z", "2026-12-01T00:00:00.000Z"],
  ])("a %s begins in UTC, and the next one follows it", (span, start, next) => {
    expect(startOf(span, now).toISOString()).toBe(start);
    expect(nextSpan(span, startOf(span, now)).toISOString()).toBe(next);
  });

  test("days become weeks above 120 bars, hours days above 168", () => {
    const days = (n: number) => new Date(now.getTime() - n * 24 * hourMs);
    expect(readableSpan("day", days(119), now)).toBe("day");
    expect(readableSpan("day", days(121), now)).toBe("week");
    expect(readableSpan("hour", days(6), now)).toBe("hour");
    expect(readableSpan("hour", days(8), now)).toBe("day");
    expect(readableSpan("hour", days(3000), now)).toBe("month");
  });

  test("bars neither lose nor double what is in their rows, whatever the span", () => {
    const rows = fc.array(
      fc.record({
        ageMs: fc.integer({ min: 0, max: 90 * 24 * hourMs }),
        values: fc.tuple(fc.bigInt(0n, 10n ** 15n), fc.bigInt(0n, 10n ** 15n)),
      }),
      { maxLength: 50 },
    );
    fc.assert(
      fc.property(rows, fc.constantFrom<Span>("hour", "day", "week", "month"), (asked, span) => {
        const from = new Date(now.getTime() - 90 * 24 * hourMs);
        const range = { span, from, to: now, series: 2 };
        const bars = barsOf(
          asked.map(({ ageMs, values }) => ({ from: new Date(now.getTime() - ageMs - 1), values })),
          range,
        );
        const sum = (values: readonly bigint[]) => values.reduce((all, one) => all + one, 0n);
        expect(sum(bars.map(totalOf))).toBe(sum(asked.map(({ values }) => sum(values))));
        expect(bars[0]?.from).toEqual(startOf(span, from));
        for (const [index, bar] of bars.entries())
          if (index > 0) expect(bar.from).toEqual(nextSpan(span, bars[index - 1]?.from ?? now));
      }),
      { numRuns: 25 },
    );
  });

  test("an axis reaches its largest bar in at most four round steps", () => {
    expect(ticksUpTo(0n)).toEqual([0n, 1n]);
    expect(ticksUpTo(7n)).toEqual([0n, 2n, 4n, 6n, 8n]);
    expect(ticksUpTo(164_000_000n, 1_000n)).toEqual(
      [0n, 50n, 100n, 150n, 200n].map((n) => n * 1_000_000n),
    );
    fc.assert(
      fc.property(fc.bigInt(0n, 2n ** 63n), (max) => {
        const ticks = ticksUpTo(max);
        expect(ticks.length).toBeLessThanOrEqual(5);
        expect((ticks.at(-1) ?? 0n) >= max).toBe(true);
      }),
    );
  });
});

function row(at: string, amounts: Partial<Record<string, bigint>> = {}, name = ""): TimedSums {
  const {
    input = 0n,
    output = 0n,
    thinking = 0n,
    cache = 0n,
    tokens = 0n,
    requests = 1n,
  } = amounts;
  return {
    from: new Date(at),
    name,
    sums: create(UsageSumsSchema, {
      usage: create(UsageTotalSchema, { input: tokens }),
      chargedMicrocredits: input + output + thinking + cache,
      inputMicrocredits: input,
      outputMicrocredits: output,
      cacheMicrocredits: cache,
      thinkingMicrocredits: thinking,
      requests,
      completed: requests,
      firstEventCounts: [...firstEventBoundsMs, Infinity].map(
        (bound) => ({ 500: 6n, 1000: 3n, [Infinity]: 1n })[bound] ?? 0n,
      ),
    }),
  };
}

describe("reports of usage", () => {
  test.each<[Period, string, string, string]>([
    ["7d", "2026-11-16", "2026-11-09", "2026-11-16"],
    ["30d", "2026-10-24", "2026-09-24", "2026-10-24"],
    ["month", "2026-11-01", "2026-10-01", "2026-10-23"],
    ["13m", "2025-11-01", "2024-10-01", "2025-11-01"],
  ])("%s ends now, and is compared with as much before", (period, from, before, beforeTo) => {
    const compared = rangeOf(period, now);
    expect(compared?.isOpen).toBe(true);
    expect(compared?.range).toEqual({ from: new Date(from), to: now });
    expect(compared?.before).toEqual({ from: new Date(before), to: new Date(beforeTo) });
  });

  test("a young account has no days before its first, and hours in its first two days", () => {
    const at = (text: string) => new Date(text);
    expect(lastDays(now, undefined).range.from).toEqual(at("2026-10-24"));
    expect(lastDays(now, at("2020-01-01")).range.from).toEqual(at("2026-10-24"));
    expect(lastDays(now, at("2026-11-10T12:30:00Z"))).toEqual({
      ...{ range: { from: at("2026-11-10"), to: now }, span: "day" },
    });
    expect(lastDays(now, at("2026-11-21T12:30:00Z"))).toEqual({
      ...{ range: { from: at("2026-11-21T12:00:00Z"), to: now }, span: "hour" },
    });
    const days = { from: "", to: "" };
    const young = rangeOf("30d", now, days, at("2026-11-21T12:30:00Z"));
    expect(young?.range.from).toEqual(at("2026-11-21"));
    expect(young && planOf(young, "", now).span).toBe("hour");
    expect(rangeOf("30d", now, days, at("2020-01-01"))).toEqual(rangeOf("30d", now));
  });

  test("days that a person chooses include the last one; what is no range is none", () => {
    const chosen = rangeOf("custom", now, { from: "2026-11-01", to: "2026-11-03" });
    expect(chosen?.range).toEqual({ from: new Date("2026-11-01"), to: new Date("2026-11-04") });
    expect(chosen?.before.from).toEqual(new Date("2026-10-29"));
    expect(rangeOf("custom", now, { from: "2026-11-22", to: "2026-11-22" })?.isOpen).toBe(true);
    for (const [from, to] of [
      ["", ""],
      ["2026-11-04", "2026-11-03"],
      ["2026-11-23", "2026-11-24"],
      ["2026-02-30", "2026-03-01"],
      ["yesterday", "2026-11-03"],
      ["2026-11-01", "<script>"],
    ])
      expect(rangeOf("custom", now, { from: from ?? "", to: to ?? "" })).toBeUndefined();
    expect(dayOf("2026-11-22")).toEqual(new Date("2026-11-22"));
  });

  test("a plan asks for what its bars need, of a page of rows and of hours that are kept", () => {
    const plan = (
      period: Period,
      wanted: "" | "hour" | "day" | "month",
      days = { from: "", to: "" },
    ) => {
      const compared = rangeOf(period, now, days);
      return compared && planOf(compared, wanted, now);
    };
    expect(plan("30d", "")).toMatchObject({ span: "day", bucket: "day" });
    expect(plan("7d", "hour")).toMatchObject({ span: "hour", bucket: "hour" });
    expect(plan("30d", "hour")).toMatchObject({ span: "day", bucket: "day" });
    expect(plan("13m", "")).toMatchObject({ span: "month", bucket: "month" });
    expect(plan("13m", "day")).toMatchObject({ span: "week", bucket: "day" });
    const old = { from: "2026-05-01", to: "2026-05-01" };
    expect(plan("custom", "", old)).toMatchObject({ span: "day", bucket: "day" });
    // Ten years are read by month, without the ten years before them.
    const years = { from: "2016-11-23", to: "2026-11-22" };
    expect(plan("custom", "day", years)).toEqual({
      span: "month",
      bucket: "month",
      askFrom: new Date("2016-11-23"),
    });
  });

  test("what is shown of a range, and of the one before, is the sum of its own hours", () => {
    const valueAt = (hour: Date) => BigInt(hour.getTime() / hourMs) ** 2n;
    /** The hours of a range, as the service widens it where single hours are gone. */
    const hoursOf = ({ from, to }: Range) => {
      const oldTo = new Date("2026-08-14").getTime();
      const first = startOf(from.getTime() < oldTo ? "day" : "hour", from);
      const last = startOf(to.getTime() < oldTo ? "day" : "hour", to);
      const end = last < to ? nextSpan(to.getTime() < oldTo ? "day" : "hour", last) : to;
      const hours: Date[] = [];
      for (let at = first; at < end; at = nextSpan("hour", at)) hours.push(at);
      return hours;
    };
    const sumOf = (range: Range) => hoursOf(range).reduce((sum, at) => sum + valueAt(at), 0n);
    const answerTo = (from: Date, to: Date, bucket: Span): TimedSums[] =>
      hoursOf({ from, to }).map((at) => ({
        ...{ from: startOf(bucket, at), name: "" },
        sums: create(UsageSumsSchema, { chargedMicrocredits: valueAt(at) }),
      }));
    const check = (compared: Compared | undefined, wanted: "" | "hour" | "day" | "month") => {
      if (!compared) throw new Error("no range");
      const { range, before } = compared;
      const plan = planOf(compared, wanted, now);
      const rows = answerTo(plan.askFrom, range.to, plan.bucket);
      const shown = splitSums(rows, compared, plan);
      expect(addSums(shown.current).amount).toBe(sumOf(range));
      const bars = categoryBars(shown.current, "credits", { range, span: plan.span });
      const starts = new Set(bars.map(({ from }) => from.getTime()));
      for (const { from } of shown.current)
        expect(starts.has(startOf(plan.span, from).getTime())).toBe(true);
      if (shown.before) expect(addSums(shown.before).amount).toBe(sumOf(before));
      return shown;
    };
    const custom = (from: string, to: string) => rangeOf("custom", now, { from, to });
    for (const [from, to, wanted] of [
      ["2026-11-16T14:00", "2026-11-19T16:00", "day"],
      ["2026-11-01T05:00", "2026-11-02T05:00", "month"],
      ["2026-07-01T14:00", "2026-07-01T16:00", ""],
      ["2026-11-18", "2026-11-19T16:00", "day"],
    ] as const)
      expect(check(custom(from, to), wanted).before).toBeUndefined();
    expect(check(custom("2026-11-16", "2026-11-18"), "").before).toBeDefined();
    const wanteds = fc.constantFrom("" as const, "hour" as const, "day" as const, "month" as const);
    const hours = fc.integer({ min: 1, max: 200 * 24 });
    const edge = fc.record({ hours, isDay: fc.boolean() });
    fc.assert(
      fc.property(edge, edge, wanteds, (first, last, wanted) => {
        const [a, b] = [first, last].map(({ hours: ago, isDay }) => {
          const at = startOf(isDay ? "day" : "hour", new Date(now.getTime() - ago * hourMs));
          return { at, text: isDay ? fieldDay(at) : at.toISOString().slice(0, 16) };
        });
        if (!a || !b || a.at >= b.at) return;
        check(custom(a.text, b.text), wanted);
      }),
      { numRuns: 60 },
    );
    for (const period of ["7d", "30d", "month", "13m"] as const)
      for (const wanted of ["", "hour", "day", "month"] as const)
        for (const born of [undefined, new Date("2026-11-10T12:30:00Z")])
          check(rangeOf(period, now, { from: "", to: "" }, born), wanted);
  });

  test("bars by category, by key and without either have one sum", () => {
    const amount = fc.bigInt(0n, 10n ** 12n);
    const rows = fc.array(
      fc.record({
        day: fc.integer({ min: 1, max: 22 }),
        name: fc.constantFrom("key_a", "key_b", "key_c"),
        parts: fc.record({
          input: amount,
          output: amount,
          thinking: amount,
          cache: amount,
          tokens: amount,
        }),
      }),
      { maxLength: 40 },
    );
    const range = { range: { from: new Date("2026-11-01"), to: now }, span: "day" as const };
    fc.assert(
      fc.property(
        rows,
        fc.constantFrom<Measure>("credits", "tokens", "requests"),
        (asked, measure) => {
          const all = asked.map(({ day, name, parts }) =>
            row(`2026-11-${String(day).padStart(2, "0")}T00:00:00Z`, parts, name),
          );
          const total = (bars: readonly { values: readonly bigint[] }[]) =>
            bars.flatMap(({ values }) => values).reduce((sum, one) => sum + one, 0n);
          const byKey = namedBars(
            { all, named: all.filter(({ name }) => name !== "key_c") },
            ["key_a", "key_b"],
            measure,
            range,
          );
          const sums = addSums(all);
          const expected = { credits: sums.amount, tokens: sums.tokens, requests: sums.requests };
          expect(total(categoryBars(all, measure, range))).toBe(expected[measure]);
          expect(total(byKey)).toBe(expected[measure]);
        },
      ),
      { numRuns: 50 },
    );
  });

  test("what was charged between two answers makes no bar negative", () => {
    const day = "2026-11-22T00:00:00Z";
    const [bar] = namedBars(
      { all: [row(day, { input: 5n })], named: [row(day, { input: 9n }, "key_a")] },
      ["key_a"],
      "credits",
      { range: { from: new Date(day), to: now }, span: "day" },
    );
    expect(bar?.values).toEqual([9n, 0n]);
  });

  test("a range ends with its last day, or at its time; hours that have begun are whole", () => {
    const custom = (from: string, to: string) => rangeOf("custom", now, { from, to })?.range;
    const at = (text: string) => new Date(`${text}Z`);
    for (const [from, to, began, ended] of [
      ["2026-11-20", "2026-11-20", "2026-11-20T00:00", "2026-11-21T00:00"],
      ["2026-11-20T14:00", "2026-11-20T17:00", "2026-11-20T14:00", "2026-11-20T17:00"],
      ["2026-11-20T14:59", "2026-11-20T17:01", "2026-11-20T14:00", "2026-11-20T18:00"],
      ["2026-11-20T14:00", "2026-11-20", "2026-11-20T14:00", "2026-11-21T00:00"],
    ] as const) {
      expect(custom(from, to)).toEqual({ from: at(began), to: at(ended) });
      expect(edgeOf(edgeText(at(began), "from"), "from")).toEqual(at(began));
      expect(edgeOf(edgeText(at(ended), "to"), "to")).toEqual(at(ended));
    }
    for (const [from, to] of [
      ["2026-11-20T14:00", "2026-11-20T14:00"],
      ["2026-11-20T15:00", "2026-11-20T14:00"],
      ["2026-11-20T24:00", "2026-11-21"],
      ["2026-11-20T1:00", "2026-11-21"],
      ["2026-11-20T10:60", "2026-11-21"],
      ["2026-11-20T10:00Z", "2026-11-21"],
      ["2026-13-20T10:00", "2026-11-21"],
    ] as const)
      expect(custom(from, to)).toBeUndefined();
  });

  test("parts that are left out are read from any address", () => {
    const found = (hide: string) => [...hiddenIn(hide)];
    expect(found("")).toEqual([]);
    expect(found("output,cache")).toEqual(["output", "cache"]);
    // The one of all others has no name.
    expect(found(",")).toEqual([""]);
    expect(found("a%2Cb")).toEqual(["a,b"]);
    expect(found("%E2%82")).toEqual([]);
  });

  test("money is written in credits or in dollars, with its sign, and never as nothing", () => {
    const [inCredits, inDollars] = [moneyIn("credits"), moneyIn("dollars")];
    for (const [micro, asCredits, asDollars] of [
      [0n, "0.00 credits", "$0.00"],
      [48_200_000n, "48.20 credits", "$0.24"],
      [100_000n, "0.10 credits", "$0.000500"],
      [-100_000n, "−0.10 credits", "−$0.000500"],
      [-48_200_000n, "−48.20 credits", "−$0.24"],
    ] as const) {
      expect(inCredits.named(micro)).toBe(asCredits);
      expect(inDollars.named(micro)).toBe(asDollars);
    }
    expect([inCredits.tick(5_000n), inCredits.tick(-20_000_000n)]).toEqual(["0.005", "−20"]);
    expect([inDollars.tick(200_000_000n), inDollars.tick(-1_000_000n)]).toEqual(["$1", "−$0.005"]);
  });

  test("the largest shares and the rest are the total, also of keys that are not read", () => {
    const rows = [3n, 9n, 5n, 5n, 1n, 7n, 2n].map((amount, index) =>
      create(UsageRowSchema, {
        ...{ keyId: `key_${index}` },
        sums: { chargedMicrocredits: amount, requests: 10n * amount },
      }),
    );
    for (const [amountMicrocredits, requests, ...left] of [
      [32n, 320n, 3n, 30n],
      [1_000n, 5_000n, 971n, 4_710n],
    ] as const) {
      const totals = create(UsageSumsSchema, { chargedMicrocredits: amountMicrocredits, requests });
      const { largest, rest } = sharesOf(rows, totals, 5);
      expect(largest.map(({ sums }) => sums?.chargedMicrocredits)).toEqual([9n, 7n, 5n, 5n, 3n]);
      expect(rest).toEqual({ rows: 2, amount: left[0], requests: left[1] });
      expect(sharesOf(rows.slice(0, 5), totals, 5).rest).toBeUndefined();
    }
  });

  test("tokens of the cache without a figure of what they saved make no point of zero", () => {
    const of = (cache: bigint, nano: bigint | undefined) =>
      savedIn({ requests: 1n, cache, cacheSaved: nano });
    expect([of(0n, 0n), of(5n, 0n), of(5n, 999n)]).toEqual([0n, undefined, 0n]);
    expect([of(5n, 7_999n), of(5n, -7_000n)]).toEqual([7n, -7n]);
    expect(savedIn({ requests: 0n, cache: 0n, cacheSaved: 0n })).toBeUndefined();
    const sums = { usage: { cacheRead: 3n, cacheWrite5m: 2n, input: 9n }, requests: 1n };
    const from = new Date("2026-11-22");
    const archived = create(UsageSumsSchema, { ...sums, cacheSavedNanocredits: 0n });
    const all = addSums([{ from, name: "", sums: archived }]);
    expect([all.cache, savedIn(all)]).toEqual([5n, undefined]);
  });

  test.each([
    ["credits", 2_000n, ["0", "0.001", "0.002"]],
    ["credits", 1_900_000n, ["0", "0.5", "1", "1.5", "2"]],
    ["credits", 7_000_000n, ["0", "2", "4", "6", "8"]],
    ["credits", 39_000_000n, ["0", "10", "20", "30", "40"]],
    ["credits", 1_900_000_000_000n, ["0", "500.0 K", "1.0 M", "1.5 M", "2.0 M"]],
    ["dollars", 390_000n, ["$0", "$0.001", "$0.002"]],
    ["dollars", 390_000_000n, ["$0", "$0.5", "$1", "$1.5", "$2"]],
    ["dollars", 1_900_000_000n, ["$0", "$5", "$10"]],
  ] as const)("the axis in %s up to %s has no number twice", (unit, max, expected) => {
    const { tick, leastTick } = moneyIn(unit);
    const ticks = ticksUpTo(max, leastTick).map((micro) => tick(micro).replace(/\s/g, " "));
    expect(ticks).toEqual(expected);
  });

  test.each(["credits", "dollars"] as const)("no axis in %s has a number twice", (unit) => {
    const { tick, leastTick } = moneyIn(unit);
    fc.assert(
      fc.property(fc.bigInt(1n, 10n ** 17n), fc.integer({ min: 0, max: 16 }), (of, digits) => {
        const ticks = ticksUpTo(of / 10n ** BigInt(digits) + 1n, leastTick).map(tick);
        expect(new Set(ticks).size).toBe(ticks.length);
      }),
    );
  });

  test("failures are added up by label; those without an outcome are named, never below none", () => {
    const { CLIENT_LEFT, REVOKED, TIME_LIMIT } = Outcome;
    const outcomes = [CLIENT_LEFT, REVOKED, TIME_LIMIT].map((outcome) => ({
      outcome,
      requests: 3n,
    }));
    const words = {
      labelOf: (one: Outcome) => (one === TIME_LIMIT ? "time" : "left"),
      lacking: "archived",
    };
    const own = [
      { name: "left", requests: 6n },
      { name: "time", requests: 3n },
    ];
    for (const [all, failures, hasMore] of [
      [9n, own, false],
      [11n, [...own, { name: "archived", requests: 2n }], false],
      // The sums of a tag lack days that have its value among the others.
      [1n, own, true],
    ] as const)
      expect(failuresOf(outcomes, all, words)).toEqual({ failures, hasMore });
  });

  test.each([
    // Kept since 14 August: before, between and after.
    ["2026-08-14", "2026-08-10", "2026-08-14", "Of this time, refusals are no longer kept."],
    ["2026-08-14", "2026-08-10", "2026-08-15", "None. Kept since 14 Aug 2026."],
    ["2026-08-14", "2026-08-10", undefined, "None. Kept since 14 Aug 2026."],
    ["2026-08-14", "2026-08-14", "2026-08-15", "None."],
    ["2026-08-20", "2026-08-20", undefined, "None."],
  ])(
    "no refusal from %s on, of %s to %s: what is not kept is named",
    (kept, from, to, expected) => {
      const errors = { startAt: timestampFromDate(new Date(kept)) };
      const lacks = notKept(errors, { from: new Date(from), ...(to && { to: new Date(to) }) });
      expect(noRefusals("None.", lacks).replace(/\s/g, " ")).toBe(expected);
    },
  );

  test("a median is known to its bounds, and a change needs something to compare with", () => {
    const sums = addSums([row("2026-11-22T00:00:00Z")]);
    expect(firstEventWithin(sums, 0.5)).toBe(500);
    expect(firstEventWithin(sums, 0.9)).toBe(1000);
    expect(firstEventWithin(sums, 0.99)).toBe(Number.POSITIVE_INFINITY);
    expect(firstEventWithin({ firstEventCounts: [] }, 0.5)).toBeUndefined();
    expect(changeOf(112n, 100n)).toBeCloseTo(0.12);
    expect(changeOf(1n, 0n)).toBeUndefined();
    const { from, to } = { from: new Date("2026-11-01"), to: new Date("2026-11-02") };
    expect([from, to].map((at) => isWithin({ from, to })({ from: at }))).toEqual([true, false]);
  });
});

function charge(second: number, requestId = `req_${second}`) {
  const at = new Date(now.getTime() + second * 1000);
  return create(ReceiptSchema, {
    requestId,
    admittedAt: timestampFromDate(at),
    settledAt: timestampFromDate(new Date(at.getTime() + 1_250)),
    attempts: [
      { firstEventAfter: { seconds: 9n, nanos: 0 } },
      { firstEventAfter: { seconds: 0n, nanos: 840_000_000 } },
    ],
  });
}

function page(seconds: readonly number[], nextPageToken = "") {
  return create(ListChargesResponseSchema, {
    charges: seconds.map((second) => charge(second)),
    nextPageToken,
  });
}

const secondsOf = (list: { charges: readonly { requestId: string }[] } | undefined) =>
  list?.charges.map(({ requestId }) => Number(requestId.slice(4)));

describe("a list of charges", () => {
  test("grows at both ends, newest first, each charge once", () => {
    let list = begin(page([5, 4, 3], "older"));
    list = addNewest(list, page([6, 5], "older"));
    list = addOlder(list, page([2, 1]));
    expect(secondsOf(list)).toEqual([6, 5, 4, 3, 2, 1]);
    expect(list).toMatchObject({ token: "", isIncomplete: false });
  });

  test("begins anew where charges would be missing in between", () => {
    const list = addOlder(begin(page([5, 4], "a")), page([3], "b"));
    expect(secondsOf(addNewest(list, page([6, 5], "c")))).toEqual([6, 5, 4, 3]);
    expect(addNewest(list, page([6, 5], "c")).token).toBe("b");
    expect(secondsOf(addNewest(list, page([9, 8], "c")))).toEqual([9, 8]);
    expect(secondsOf(addNewest(undefined, page([1])))).toEqual([1]);
  });

  test("knows from when on charges are archived, from the last page", () => {
    const at = new Date("2026-09-01T00:00:00Z");
    const last = create(ListChargesResponseSchema, {
      ...page([1]),
      archivedBefore: timestampFromDate(at),
    });
    const list = begin(page([3, 2], "older"));
    expect(list.archivedBefore).toBeUndefined();
    expect(addOlder(list, last)).toMatchObject({ token: "", archivedBefore: at });
  });

  test("says so when the list is too long", () => {
    const many = Array.from({ length: 1_000 }, (_, second) => second + 1);
    const list = addOlder(begin(page([0], "older")), page(many));
    expect(list?.charges).toHaveLength(1_000);
    expect(list).toMatchObject({ token: "", isIncomplete: true });
    expect(list?.charges[0]?.requestId).toBe("req_1000");
  });

  test("a request took until its settlement, and its first event is of its last attempt", () => {
    expect(durationOf(charge(1))).toBe(1_250);
    expect(firstEventOf(charge(1))).toBe(840);
    expect(durationOf(create(ReceiptSchema, {}))).toBeUndefined();
    expect(firstEventOf(create(ReceiptSchema, {}))).toBeUndefined();
  });
});

describe("exact decimals", () => {
  test("coins add up without a float in between", () => {
    expect(addDecimals("0.1", "0.2")).toBe("0.3");
    expect(addDecimals("0.00004", "0.0000369")).toBe("0.0000769");
    expect(addDecimals("1", "2")).toBe("3");
    expect(addDecimals("0.10", "0.20")).toBe("0.3");
    expect(addDecimals("0.50", "0.500")).toBe("1");
    expect(addDecimals("5.00", "95.00")).toBe("100");
    expect(addDecimals("10", "0.000000000000000001")).toBe("10.000000000000000001");
    const decimal = fc.tuple(fc.bigInt(0n, 10n ** 30n), fc.integer({ min: 0, max: 18 }));
    fc.assert(
      fc.property(decimal, decimal, ([a, placesA], [b, placesB]) => {
        const text = (units: bigint, places: number) => {
          const digits = String(units).padStart(places + 1, "0");
          return places === 0 ? digits : `${digits.slice(0, -places)}.${digits.slice(-places)}`;
        };
        const units = (decimalText: string) => {
          const [whole = "0", rest = ""] = decimalText.split(".");
          return BigInt(whole + rest.padEnd(18, "0"));
        };
        const [first, second] = [text(a, placesA), text(b, placesB)];
        expect(units(addDecimals(first, second))).toBe(units(first) + units(second));
      }),
    );
  });

  test("half of an amount has no more places than it, but for two", () => {
    expect(["5", "0.03", "0.00007693", "12.50"].map(halfOf)).toEqual([
      "2.5",
      "0.01",
      "0.00003846",
      "6.25",
    ]);
  });

  test("amounts of documents have two places, or as many as they need", () => {
    expect(exact(0n)).toBe("0.00");
    expect(exact(5_000_000n)).toBe("5.00");
    expect(exact(4_987_650n)).toBe("4.98765");
    expect(exact(-1_234_567_000_000n)).toBe("−1,234,567.00");
    expect(exact(1n)).toBe("0.000001");
    expect(groupDigits("65000.00")).toBe("65,000.00");
    expect(groupDigits("999")).toBe("999");
    expect(["0", "0.000", "", "0.01"].map(isZero)).toEqual([true, true, true, false]);
  });

  test("a countdown ends at zero", () => {
    const until = new Date("2026-11-22T14:17:31Z");
    expect(countdown(until, now)).toBe("15:00");
    expect(countdown(until, new Date(until.getTime() - 1))).toBe("0:01");
    expect(countdown(until, new Date(until.getTime() + 5_000))).toBe("0:00");
    expect(countdown(new Date(now.getTime() + 2 * hourMs), now)).toBe("2:00:00");
  });
});

test("a month so far is drawn beside the whole month before, whichever of them is longer", () => {
  const utc = (day: number, month: number) => new Date(Date.UTC(2027, month, day));
  const anySpent = fc.array(fc.record({ day: fc.nat(70), micro: fc.nat(9) }), { maxLength: 8 });
  fc.assert(
    // The months of a leap year and of the one before it.
    fc.property(fc.nat(23), fc.nat(31 * 24), anySpent, (month, hours, spent) => {
      const [before, start, end] = [-1, 0, 1].map((more) => utc(1, month + more));
      if (!before || !start || !end) throw new Error("three months");
      const length = (end.getTime() - start.getTime()) / hourMs;
      const now = new Date(start.getTime() + Math.min(hours, length - 1) * hourMs);
      const rows = spent.map(({ day, micro }) =>
        create(UsageRowSchema, {
          startAt: timestampFromDate(new Date(before.getTime() + day * 24 * hourMs)),
          sums: { chargedMicrocredits: BigInt(micro) },
        }),
      );
      const spentIn = (from: Date, to: Date) =>
        spent
          .map(({ day, micro }) => ({ at: utc(1 + day, month - 1), micro }))
          .filter(({ at }) => at >= from && at <= to)
          .reduce((sum, { micro }) => sum + BigInt(micro), 0n);
      const days = daysOfMonth(rows, { now, start, before });
      expect(days).toEqual(
        Array.from({ length: days.length }, (_, day) => {
          const [at, atBefore] = [utc(1 + day, month), utc(1 + day, month - 1)];
          return {
            from: at,
            sum: at < end && at <= now ? spentIn(start, at) : undefined,
            sumBefore: atBefore < start ? spentIn(before, atBefore) : undefined,
          };
        }),
      );
      const lengths = [before, start].map((first, index) => {
        const next = [start, end][index] ?? end;
        return (next.getTime() - first.getTime()) / hourMs / 24;
      });
      expect(days).toHaveLength(Math.max(...lengths));
    }),
    { numRuns: 200 },
  );
});
