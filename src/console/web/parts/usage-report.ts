// What the usage page asks for and how it adds up the answer. Pure, so that tests need no browser.

import type { Outcome } from "../../../../gen/gateway/billing/v1/receipt_pb.ts";
import type {
  OutcomeCount,
  UsageRow,
  UsageSums,
} from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { firstEventBoundsMs, hoursKeptDays, reportRowsMax } from "../../../base/shown-figures.ts";
import { sideOf, type TokenCategory, tokenCategories } from "../../../base/token-categories.ts";
import { fieldDay } from "../format.ts";
import {
  type Bar,
  barsOf,
  nextSpan,
  readableSpan,
  type Span,
  spansIn,
  startOf,
} from "./timeline.ts";

export type Period = "7d" | "30d" | "month" | "13m" | "custom";
export type Measure = "credits" | "tokens" | "requests";

/** Exclusive at its end. */
export type Range = { readonly from: Date; readonly to: Date };

/** A range to show, and the one before it to compare with. */
export type Compared = {
  readonly range: Range;
  /** True: the range ends now, and grows. */
  readonly isOpen: boolean;
  readonly before: Range;
};

const dayMs = 86_400_000;

/**
 * The range of a period. `from`, `to`: the edges of a custom one, as `edgeOf` reads them.
 * Undefined: they are no range that has begun. `born`: of the account, which has no days before.
 */
export function rangeOf(
  period: Period,
  now: Date,
  { from, to }: { readonly from: string; readonly to: string } = { from: "", to: "" },
  born?: Date,
): Compared | undefined {
  const found = wholeRangeOf(period, now, { from, to });
  if (!found || !born || period === "custom" || born <= found.range.from) return found;
  return { ...found, range: { from: startOf("day", born), to: found.range.to } };
}

function wholeRangeOf(
  period: Period,
  now: Date,
  { from, to }: { readonly from: string; readonly to: string },
): Compared | undefined {
  const today = startOf("day", now);
  const daysAgo = (days: number) => new Date(today.getTime() - days * dayMs);
  const monthsAgo = (months: number) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - months, 1));
  if (period === "7d" || period === "30d") {
    const days = period === "7d" ? 7 : 30;
    const start = daysAgo(days - 1);
    const before = { from: daysAgo(2 * days - 1), to: start };
    return { range: { from: start, to: now }, isOpen: true, before };
  }
  if (period === "month") {
    const [start, last] = [monthsAgo(0), monthsAgo(1)];
    const end = new Date(
      Math.min(last.getTime() + (now.getTime() - start.getTime()), start.getTime()),
    );
    // Sums are of whole days, so the day of now counts whole in both months.
    const to = new Date(Math.min(nextSpan("day", startOf("day", end)).getTime(), start.getTime()));
    return { range: { from: start, to: now }, isOpen: true, before: { from: last, to } };
  }
  if (period === "13m") {
    const start = monthsAgo(12);
    return {
      range: { from: start, to: now },
      isOpen: true,
      before: { from: monthsAgo(25), to: start },
    };
  }
  const [began, ended] = [edgeOf(from, "from"), edgeOf(to, "to")];
  if (!began || !ended || began >= ended || began > now) return undefined;
  // Sums are of whole hours.
  const first = startOf("hour", began);
  const last = startOf("hour", ended);
  const end = last < ended ? nextSpan("hour", last) : ended;
  const isOpen = end > now;
  const length = end.getTime() - first.getTime();
  const before = { from: new Date(first.getTime() - length), to: first };
  return { range: { from: first, to: isOpen ? now : end }, isOpen, before };
}

/** The range of the last 30 days, from the first day of an account that is younger. */
export function lastDays(now: Date, born: Date | undefined): { range: Range; span: Span } {
  const thirtyDays = startOf("day", new Date(now.getTime() - 29 * dayMs));
  if (!born || born <= thirtyDays) return { range: { from: thirtyDays, to: now }, span: "day" };
  // One bar for each of two days says nothing.
  const span = now.getTime() - born.getTime() < 2 * dayMs ? "hour" : "day";
  return { range: { from: startOf(span, born), to: now }, span };
}

/** Midnight of a day as `2026-11-22`. Undefined: it is none. */
export function dayOf(text: string): Date | undefined {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return undefined;
  const date = new Date(`${text}T00:00:00Z`);
  return Number.isNaN(date.getTime()) || fieldDay(date) !== text ? undefined : date;
}

type Edge = "from" | "to";

/**
 * The time at which a range begins or ends, exclusively: of a day (`2026-11-22`) its first moment
 * or its last, of a time (`2026-11-22T14:00`) this itself, in UTC. Undefined: it is none.
 */
export function edgeOf(text: string, edge: Edge): Date | undefined {
  const [dayText = "", clock] = text.split("T");
  const start = dayOf(dayText);
  if (!start) return undefined;
  if (clock === undefined) return edge === "from" ? start : nextSpan("day", start);
  const [, hours, minutes] = /^([01]\d|2[0-3]):([0-5]\d)$/.exec(clock) ?? [];
  if (hours === undefined) return undefined;
  return new Date(start.getTime() + (Number(hours) * 60 + Number(minutes)) * 60_000);
}

/** The same as a text, a day where it can be. */
export function edgeText(at: Date, edge: Edge): string {
  if (startOf("day", at) < at) return at.toISOString().slice(0, 16);
  return fieldDay(edge === "from" ? at : new Date(at.getTime() - 1));
}

/** One day less: that which has begun. */
const hoursKeptMs = (hoursKeptDays - 1) * dayMs;
/** Of a report on one page, with some days to spare. */
const daysMax = reportRowsMax - 100;

/** What one bar covers, what is asked for, and from when on. */
export type Plan = {
  readonly span: Span;
  readonly bucket: "hour" | "day" | "month";
  /**
   * The range before is asked for with the same call, unless that is too much or a bucket begins
   * before one of the two.
   */
  readonly askFrom: Date;
};

/** `wanted`: what the person chose; empty: the one that fits. */
export function planOf(
  { range, before }: Compared,
  wanted: "" | "hour" | "day" | "month",
  now: Date,
): Plan {
  const days = spansIn("day", range.from, range.to);
  const fitting = days <= 2 ? "hour" : days <= 120 ? "day" : "month";
  const hoursAreKept = before.from.getTime() > now.getTime() - hoursKeptMs;
  const chosen = wanted || fitting;
  const span = readableSpan(
    chosen === "hour" && !hoursAreKept ? "day" : chosen,
    range.from,
    range.to,
  );
  if (span === "hour") return { span, bucket: "hour", askFrom: before.from };
  // Buckets that hold hours of both ranges, or of the time between them, tell neither.
  const begin = (bucket: "day" | "month") =>
    [range.from, before.from, before.to].every((at) => startOf(bucket, at) >= at);
  if (span === "month" && begin("month")) return { span, bucket: "month", askFrom: before.from };
  const isOnePage = spansIn("day", before.from, range.to) <= daysMax;
  if (isOnePage && begin("day")) return { span, bucket: "day", askFrom: before.from };
  if (isOnePage && span !== "month") return { span, bucket: "day", askFrom: range.from };
  return { span: "month", bucket: "month", askFrom: range.from };
}

/** A row with its time, as `UsageRow` has it. */
export type TimedSums = { readonly from: Date; readonly name: string; readonly sums: UsageSums };

export function timed(row: UsageRow, name = ""): TimedSums[] {
  if (!row.startAt || !row.sums) return [];
  return [{ from: new Date(Number(row.startAt.seconds) * 1000), name, sums: row.sums }];
}

export function isWithin({ from, to }: Range): (row: { readonly from: Date }) => boolean {
  return (row) => row.from >= from && row.from < to;
}

/**
 * The sums of the range of an answer to a plan, and of the range before. `before` undefined: it was
 * not asked for.
 */
export function splitSums(
  rows: readonly TimedSums[],
  { range, before }: Compared,
  { askFrom }: Plan,
): { readonly current: readonly TimedSums[]; readonly before: readonly TimedSums[] | undefined } {
  // Without the range before, all rows count: the first bucket may begin before the range.
  if (askFrom >= range.from) return { current: rows, before: undefined };
  return { current: rows.filter(isWithin(range)), before: rows.filter(isWithin(before)) };
}

/** What was spent from the first of a month to the end of one of its days. */
type DayOfMonth = {
  readonly from: Date;
  /** Undefined: the month has no such day, or it has not begun. */
  readonly sum: bigint | undefined;
  /** Of the month before. Undefined: it has no such day. */
  readonly sumBefore: bigint | undefined;
};

/**
 * The days of a month so far, beside those of the month before. `start`, `before`: the first days
 * of both.
 */
export function daysOfMonth(
  rows: readonly UsageRow[],
  { now, start, before }: { readonly now: Date; readonly start: Date; readonly before: Date },
): DayOfMonth[] {
  const end = nextSpan("month", start);
  const spent = new Map<number, bigint>();
  for (const { from, sums } of rows.flatMap((row) => timed(row)))
    spent.set(from.getTime(), (spent.get(from.getTime()) ?? 0n) + sums.chargedMicrocredits);
  const length = Math.max(
    (end.getTime() - start.getTime()) / dayMs,
    (start.getTime() - before.getTime()) / dayMs,
  );
  let [sum, sumBefore] = [0n, 0n];
  return Array.from({ length }, (_, day) => {
    const from = new Date(start.getTime() + day * dayMs);
    const fromBefore = new Date(before.getTime() + day * dayMs);
    sum += from < end ? (spent.get(from.getTime()) ?? 0n) : 0n;
    sumBefore += fromBefore < start ? (spent.get(fromBefore.getTime()) ?? 0n) : 0n;
    return {
      from,
      sum: from > now || from >= end ? undefined : sum,
      sumBefore: fromBefore < start ? sumBefore : undefined,
    };
  });
}

export type TokenSide = (typeof sideOf)[TokenCategory];

/** The tokens of some sums that are charged on these sides. */
export function tokensOf(
  { usage }: UsageSums,
  sides: readonly TokenSide[] = ["input", "output", "cache", "thinking"],
): bigint {
  if (!usage) return 0n;
  return tokenCategories
    .filter((category) => sides.includes(sideOf[category]))
    .reduce((sum, category) => sum + usage[category], 0n);
}

export function measured(measure: Measure, sums: UsageSums): bigint {
  if (measure === "credits") return sums.chargedMicrocredits;
  return measure === "tokens" ? tokensOf(sums) : sums.requests;
}

/** The parts of a bar by category. */
export type Category = TokenCategory | "cache" | "completed" | "failed" | "cut";

/** The parts that a measure has, from the bottom up. */
export const categoriesOf: Readonly<Record<Measure, readonly Category[]>> = {
  credits: ["input", "output", "thinking", "cache"],
  tokens: tokenCategories,
  requests: ["completed", "failed", "cut"],
};

/** One value for each of `categoriesOf`. */
function partsOf(measure: Measure, sums: UsageSums): bigint[] {
  if (measure === "credits")
    return [
      sums.inputMicrocredits,
      sums.outputMicrocredits,
      sums.thinkingMicrocredits,
      sums.cacheMicrocredits,
    ];
  if (measure === "requests") return [sums.completed, sums.failed, sums.cut];
  return tokenCategories.map((category) => sums.usage?.[category] ?? 0n);
}

/** Bars by category. */
export function categoryBars(
  rows: readonly TimedSums[],
  measure: Measure,
  { range, span }: { readonly range: Range; readonly span: Span },
): Bar[] {
  const series = categoriesOf[measure].length;
  const parts = rows.map(({ from, sums }) => ({ from, values: partsOf(measure, sums) }));
  return barsOf(parts, { span, ...range, series });
}

/** Bars by name, such as the id of a key: one part for each of `names`, and one for all others. */
export function namedBars(
  { all, named }: { readonly all: readonly TimedSums[]; readonly named: readonly TimedSums[] },
  names: readonly string[],
  measure: Measure,
  { range, span }: { readonly range: Range; readonly span: Span },
): Bar[] {
  const series = names.length + 1;
  const rest = names.length;
  const rows: Bar[] = all.map(({ from, sums }) => ({
    from,
    values: [...Array<bigint>(rest).fill(0n), measured(measure, sums)],
  }));
  for (const { from, name, sums } of named) {
    const place = names.indexOf(name);
    if (place === -1) continue;
    const value = measured(measure, sums);
    const values = Array<bigint>(series).fill(0n);
    values[place] = value;
    values[rest] = -value;
    rows.push({ from, values });
  }
  const bars = barsOf(rows, { span, ...range, series });
  // What was charged between the two answers is in one of them only.
  return bars.map(({ from, values }) => ({
    from,
    values: values.map((value) => (value < 0n ? 0n : value)),
  }));
}

/**
 * The rows that cost most, and what is left of the totals for all others. `rows` of the rest: how
 * many are known. Without a rest, it is undefined.
 */
export function sharesOf(
  rows: readonly UsageRow[],
  totals: UsageSums,
  most: number,
): {
  readonly largest: readonly UsageRow[];
  readonly rest:
    | { readonly rows: number; readonly requests: bigint; readonly amount: bigint }
    | undefined;
} {
  const amountOf = ({ sums }: UsageRow) => sums?.chargedMicrocredits ?? 0n;
  const largest = rows
    .toSorted((a, b) => (amountOf(a) < amountOf(b) ? 1 : amountOf(a) > amountOf(b) ? -1 : 0))
    .slice(0, most);
  const left = (all: bigint, of: (row: UsageRow) => bigint) =>
    largest.reduce((sum, row) => sum - of(row), all);
  const rest = {
    rows: rows.length - largest.length,
    requests: left(totals.requests, ({ sums }) => sums?.requests ?? 0n),
    amount: left(totals.chargedMicrocredits, amountOf),
  };
  return { largest, rest: rest.rows > 0 ? rest : undefined };
}

export type Named = { readonly name: string; readonly requests: bigint };

/**
 * Outcomes by their labels. `all`: of the sums, of which some may have no outcome: those are
 * `lacking`. True `hasMore`: the sums lack some of these.
 */
export function failuresOf(
  outcomes: readonly Pick<OutcomeCount, "outcome" | "requests">[],
  all: bigint,
  { labelOf, lacking }: { readonly labelOf: (one: Outcome) => string; readonly lacking: string },
): { readonly failures: readonly Named[]; readonly hasMore: boolean } {
  const found = new Map<string, bigint>();
  let known = 0n;
  for (const { outcome, requests } of outcomes) {
    const label = labelOf(outcome);
    found.set(label, (found.get(label) ?? 0n) + requests);
    known += requests;
  }
  const rows = [...found].map(([name, requests]) => ({ name, requests }));
  const rest = all > known ? [{ name: lacking, requests: all - known }] : [];
  return { failures: [...rows, ...rest], hasMore: known > all };
}

type Counted = Pick<UsageSums, "firstEventCounts">;

/** Adds up sums. */
export function addSums(rows: readonly TimedSums[]): {
  readonly amount: bigint;
  readonly requests: bigint;
  readonly failed: bigint;
  readonly cut: bigint;
  readonly tokens: bigint;
  readonly input: bigint;
  /** Written to the prompt cache and read from it. */
  readonly cache: bigint;
  readonly cacheRead: bigint;
  /** In nano-credits. Undefined: it is not kept, as by tag. */
  readonly cacheSaved: bigint | undefined;
  readonly firstEventCounts: readonly bigint[];
} {
  const sum = (of: (sums: UsageSums) => bigint) =>
    rows.reduce((all, { sums }) => all + of(sums), 0n);
  return {
    amount: sum((one) => one.chargedMicrocredits),
    requests: sum((one) => one.requests),
    failed: sum((one) => one.failed),
    cut: sum((one) => one.cut),
    tokens: sum((one) => tokensOf(one)),
    input: sum((one) => tokensOf(one, ["input", "cache"])),
    cache: sum((one) => tokensOf(one, ["cache"])),
    cacheRead: sum(({ usage }) => usage?.cacheRead ?? 0n),
    cacheSaved: rows.every(({ sums }) => sums.cacheSavedNanocredits !== undefined)
      ? sum((one) => one.cacheSavedNanocredits ?? 0n)
      : undefined,
    firstEventCounts: Array.from({ length: firstEventBoundsMs.length + 1 }, (_, index) =>
      sum((one) => one.firstEventCounts[index] ?? 0n),
    ),
  };
}

/**
 * What the cache saved, in micro-credits, of which the rest is cut off. Undefined: no request, or
 * tokens of the cache without a figure, as of months that were archived before it was kept.
 */
export function savedIn({
  requests,
  cache,
  cacheSaved = 0n,
}: Pick<ReturnType<typeof addSums>, "requests" | "cache" | "cacheSaved">): bigint | undefined {
  return requests === 0n || (cache > 0n && cacheSaved === 0n) ? undefined : cacheSaved / 1_000n;
}

/**
 * The count in which a share of the first events ends: its upper bound in milliseconds, or
 * `Infinity` for the last one. Undefined: there was no first event.
 */
export function firstEventWithin(
  { firstEventCounts }: Counted | { readonly firstEventCounts: readonly bigint[] },
  share: number,
): number | undefined {
  const all = firstEventCounts.reduce((sum, one) => sum + one, 0n);
  if (all === 0n) return undefined;
  let seen = 0n;
  for (const [index, one] of firstEventCounts.entries()) {
    seen += one;
    if (Number(seen) >= share * Number(all)) return firstEventBoundsMs[index] ?? Infinity;
  }
  return Infinity;
}

/** `(now - before) / before`. Undefined: there was nothing before. */
export function changeOf(now: bigint, before: bigint): number | undefined {
  return before === 0n ? undefined : Number(now - before) / Number(before);
}

/** The parts that are left out, as the address has them. The id of all others is empty. */
export function hiddenText(ids: readonly string[]): string {
  const text = ids.map(encodeURIComponent).join(",");
  return ids.length > 0 && text === "" ? "," : text;
}

/** The same from an address, which somebody may have typed. */
export function hiddenIn(hide: string): ReadonlySet<string> {
  if (hide === "") return new Set();
  try {
    return new Set(hide.split(",").map(decodeURIComponent));
  } catch {
    return new Set();
  }
}
