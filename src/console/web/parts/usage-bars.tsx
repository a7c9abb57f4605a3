// Bars of the last 30 days, on pages that are about something else.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import {
  Bucket,
  type QueryUsageResponse,
  UsageGroup,
  UsageService,
} from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { type Call, useCall } from "../api.ts";
import { compact, credits } from "../format.ts";
import { account, bornAt } from "../session.ts";
import { words } from "../words.ts";
import { Bars, Legend, type Series } from "./bars.tsx";
import { type Bar, startOf } from "./timeline.ts";
import { isWithin, lastDays, namedBars, type TimedSums, timed } from "./usage-report.ts";

type UsageAnswer = Parameters<typeof timed>[0];

/**
 * What was used of an account, or of one key, by model: on each of the last 30 days, or in each
 * hour of an account that was made in the last two. If asked, with the budgets of the person.
 */
export function useLastDays({
  keyId,
  withOwnBudgets = false,
}: {
  readonly keyId?: string;
  readonly withOwnBudgets?: boolean;
} = {}): Call<QueryUsageResponse> {
  const { accountId } = account.value;
  // The start is that of a day, so that the question stays the same until midnight. On the last day
  // of a long month, the month began earlier.
  const now = new Date();
  const { range, span } = lastDays(now, bornAt());
  const month = startOf("month", now);
  const request = {
    accountId,
    startAt: timestampFromDate(span === "day" && month < range.from ? month : range.from),
    bucket: span === "hour" ? Bucket.HOUR : Bucket.DAY,
    groupBy: [UsageGroup.MODEL],
    keyIds: keyId === undefined ? [] : [keyId],
    includeOwnBudgets: withOwnBudgets,
  };
  return useCall(UsageService.method.queryUsage, request, { isLive: true });
}

/** What a card with these bars is called. */
export function barsTitle(): string {
  const { span } = lastDays(new Date(), bornAt());
  return span === "hour" ? words.overview.chartHours : words.overview.chart;
}

/** The rows of an answer. */
export function timedRows(rows: readonly UsageAnswer[]): TimedSums[] {
  return rows.flatMap((row) => timed(row, row.model));
}

/** The sum of the charges since a time. */
export function spentSince(rows: readonly TimedSums[], from: Date): bigint {
  return rows
    .filter(isWithin({ from, to: new Date(8.64e15) }))
    .reduce((sum, { sums }) => sum + sums.chargedMicrocredits, 0n);
}

const modelsMax = 5;

/** Stacked bars, one for each day or hour. The models that cost most have colours of their own. */
export function DayBars({ rows }: { rows: readonly TimedSums[] }): JSX.Element {
  const { range, span } = lastDays(new Date(), bornAt());
  const totals = new Map<string, bigint>();
  for (const { name, sums } of rows)
    totals.set(name, (totals.get(name) ?? 0n) + sums.chargedMicrocredits);
  const models = [...totals].sort(([, a], [, b]) => (a < b ? 1 : -1)).map(([name]) => name);
  const names = models.slice(0, modelsMax);
  const bars: readonly Bar[] = namedBars(
    { all: rows, named: rows.filter(({ name }) => names.includes(name)) },
    names,
    "credits",
    { range, span },
  );
  const hasRest = models.length > names.length;
  const series: readonly Series[] = [
    ...names.map((id, index) => ({ id, name: id, colour: `series-${index + 1}` })),
    ...(hasRest ? [{ id: "", name: words.overview.otherModels, colour: "series-rest" }] : []),
  ];
  return (
    <>
      <Legend series={series} />
      <Bars
        label={barsTitle()}
        series={series}
        bars={bars}
        span={span}
        openFrom={startOf(span, new Date())}
        format={(value) => `${credits(value)} ${words.common.credits}`}
        formatTick={(value) => compact(value / 1_000_000n)}
        leastTick={1_000_000n}
      />
    </>
  );
}
