// Time in charts: spans of UTC time, the bars that cover a range, and the ticks of their axis.
// Pure, so that tests need no browser.

/** What one bar covers, in UTC. A week begins on Monday. */
export type Span = "hour" | "day" | "week" | "month";

/** One bar: the sums of a span. `from`: where it begins. */
export type Bar = { readonly from: Date; readonly values: readonly bigint[] };

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** More bars than these are too thin to read, so that a coarser span is drawn. */
const barsMax: Readonly<Record<Span, number>> = { hour: 168, day: 120, week: 120, month: 1_000 };
const coarser: Readonly<Record<Span, Span>> = {
  hour: "day",
  day: "week",
  week: "month",
  month: "month",
};

/** The start of the span that holds a moment. */
export function startOf(span: Span, at: Date): Date {
  const [year, month, day] = [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate()];
  if (span === "hour") return new Date(Math.floor(at.getTime() / hourMs) * hourMs);
  if (span === "day") return new Date(Date.UTC(year, month, day));
  if (span === "week") return new Date(Date.UTC(year, month, day - ((at.getUTCDay() + 6) % 7)));
  return new Date(Date.UTC(year, month, 1));
}

/** The start of the next span. `from`: the start of one. */
export function nextSpan(span: Span, from: Date): Date {
  if (span === "hour") return new Date(from.getTime() + hourMs);
  if (span === "day") return new Date(from.getTime() + dayMs);
  if (span === "week") return new Date(from.getTime() + 7 * dayMs);
  return new Date(Date.UTC(from.getUTCFullYear(), from.getUTCMonth() + 1, 1));
}

/** How many spans a range touches. */
export function spansIn(span: Span, from: Date, to: Date): number {
  let count = 0;
  for (let at = startOf(span, from); at < to; at = nextSpan(span, at)) count++;
  return count;
}

/** The given span, or the next coarser one whose bars in the range can be seen apart. */
export function readableSpan(span: Span, from: Date, to: Date): Span {
  let chosen = span;
  while (chosen !== "month" && spansIn(chosen, from, to) > barsMax[chosen])
    chosen = coarser[chosen];
  return chosen;
}

/**
 * A bar for each span of a range, also for those without rows. Rows of one span are summed.
 * `series`: how many values each row has.
 */
export function barsOf(
  rows: Iterable<Bar>,
  { span, from, to, series }: { span: Span; from: Date; to: Date; series: number },
): Bar[] {
  const sums = new Map<number, bigint[]>();
  for (let at = startOf(span, from); at < to; at = nextSpan(span, at))
    sums.set(at.getTime(), Array<bigint>(series).fill(0n));
  for (const row of rows) {
    const sum = sums.get(startOf(span, row.from).getTime());
    if (sum)
      for (const [index, value] of row.values.entries()) sum[index] = (sum[index] ?? 0n) + value;
  }
  return [...sums].map(([at, values]) => ({ from: new Date(at), values }));
}

export function totalOf({ values }: Bar): bigint {
  return values.reduce((sum, value) => sum + value, 0n);
}

/**
 * Ticks of an axis from 0 up to `max` or a little above it: 1, 2 or 5 times a power of ten apart,
 * and never less than `least`.
 */
export function ticksUpTo(max: bigint, least = 1n): bigint[] {
  const goal = max > 0n ? max : least;
  let step = least;
  // 1, 2, 5, 10, 20, …: at most four steps reach the largest bar.
  for (let index = 0; step * 4n < goal; index++) {
    const [of, by] = index % 3 === 1 ? [5n, 2n] : [2n, 1n];
    step = (step * of) / by;
  }
  const ticks = [0n];
  while ((ticks.at(-1) ?? 0n) < goal) ticks.push((ticks.at(-1) ?? 0n) + step);
  return ticks;
}
