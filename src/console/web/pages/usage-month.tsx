// What was spent of this month up to each day, against the same days of last month and against the
// budget of the pool or the key.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import {
  BillingService,
  Bucket,
  UsageGroup,
  type UsageRow,
} from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { type Budget, BudgetWindow_Name } from "../../../../gen/gateway/common/v1/budget_pb.ts";
import { KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { useCall } from "../api.ts";
import { useAllPages } from "../parts/all-pages.ts";
import { Bars, Legend, type Point, type Series } from "../parts/bars.tsx";
import { Segments } from "../parts/choices.tsx";
import { optionsOf } from "../parts/filters.tsx";
import { Card } from "../parts/page.tsx";
import { familyOf, type PoolName, poolNameOf } from "../parts/pools.ts";
import { useSeen } from "../parts/seen.ts";
import { nextSpan, startOf } from "../parts/timeline.ts";
import { timed } from "../parts/usage-report.ts";
import { Skeleton, View } from "../parts/view.tsx";
import { account } from "../session.ts";
import { whyWords } from "../words-why.ts";
import { type Chosen, rowsOf } from "./usage-calls.ts";

const text = whyWords.month;
const dayMs = 86_400_000;

/** Waits until somebody scrolls to it. */
export function MonthSoFar({ chosen }: { readonly chosen: Chosen }): JSX.Element {
  const [place, isSeen] = useSeen();
  const [pool, setPool] = useState<"" | PoolName>("");
  const { filter } = chosen;
  const now = new Date();
  const start = startOf("month", now);
  const before = startOf("month", new Date(start.getTime() - 1));
  const request = {
    ...{ ...filter, from: timestampFromDate(before), bucket: Bucket.DAY },
    groupBy: [UsageGroup.FAMILY],
  };
  const call = useAllPages(BillingService.method.queryUsage, isSeen ? request : undefined, rowsOf, {
    isLive: true,
  });
  const found = call.data?.items ?? [];
  const families = [...new Set(found.map(({ family }) => poolNameOf(family)))];
  const only = families.length === 1 ? families[0] : undefined;
  const limit = useLimit(chosen, pool || only, isSeen);
  return (
    <Card
      title={text.title}
      about={text.about}
      place={place}
      tools={
        families.length > 1 && (
          <Segments
            label={text.pool}
            value={pool}
            onInput={setPool}
            options={optionsOf(text.pools)}
          />
        )
      }
    >
      <View call={call} skeleton={<Skeleton chart />}>
        {({ items }) => {
          const rows = items.filter(({ family }) => pool === "" || family === familyOf[pool]);
          return <Month rows={rows} {...{ chosen, now, start, before, limit }} />;
        }}
      </View>
    </Card>
  );
}

type Limit = { readonly micro: bigint; readonly of: string };

/** The monthly limit that binds what is shown. Undefined: there is none, or of another part. */
function useLimit({ filter }: Chosen, pool: PoolName | undefined, isSeen: boolean) {
  const { accountId } = account.value;
  const [keyId] = filter.keyIds;
  const isOfPool = keyId === undefined && pool !== undefined;
  const isPart = filter.models.length > 0 || Object.keys(filter.tags).length > 0;
  const pools = useCall(
    BillingService.method.getForecast,
    isSeen && isOfPool && !isPart ? { accountId } : undefined,
  );
  const key = useCall(
    KeysService.method.getKey,
    isSeen && keyId !== undefined && !isPart ? { keyId } : undefined,
  );
  if (isPart) return undefined;
  const budget = isOfPool
    ? pools.data?.forecasts.find(({ family }) => family === familyOf[pool])?.budget
    : key.data?.key?.budget;
  const micro = monthlyOf(budget);
  if (micro === undefined) return undefined;
  return { micro, of: isOfPool ? text.ofPool(pool) : text.ofKey };
}

function monthlyOf(budget: Budget | undefined): bigint | undefined {
  return budget?.windows.find(({ window }) => window === BudgetWindow_Name.MONTH)
    ?.limitMicrocredits;
}

type MonthProps = {
  readonly rows: readonly UsageRow[];
  readonly chosen: Chosen;
  readonly now: Date;
  /** Of this month and of the one before. */
  readonly start: Date;
  readonly before: Date;
  readonly limit: Limit | undefined;
};

function Month({ rows, chosen, now, start, before, limit }: MonthProps): JSX.Element {
  const { money } = chosen;
  const end = nextSpan("month", start);
  const spent = new Map<number, bigint>();
  for (const { from, sums } of rows.flatMap((row) => timed(row)))
    spent.set(from.getTime(), (spent.get(from.getTime()) ?? 0n) + sums.amountMicrocredits);
  const days = Math.max(
    (end.getTime() - start.getTime()) / dayMs,
    (start.getTime() - before.getTime()) / dayMs,
  );
  let [sum, sumBefore] = [0n, 0n];
  const points: Point[] = [];
  for (let day = 0; day < days; day++) {
    const at = new Date(start.getTime() + day * dayMs);
    const atBefore = new Date(before.getTime() + day * dayMs);
    sum += at < end ? (spent.get(at.getTime()) ?? 0n) : 0n;
    sumBefore += atBefore < start ? (spent.get(atBefore.getTime()) ?? 0n) : 0n;
    points.push({
      from: at,
      values: [
        at > now || at >= end ? undefined : sum,
        atBefore < start ? sumBefore : undefined,
        ...(limit ? [limit.micro] : []),
      ],
    });
  }
  const series: Series[] = [
    { id: "now", name: text.now, colour: "cat-output" },
    { id: "before", name: text.before, colour: "series-rest" },
    ...(limit ? [{ id: "limit", name: text.limit, colour: "line-limit" }] : []),
  ];
  const dayOf = (at: Date) => text.day(1 + (at.getTime() - start.getTime()) / dayMs);
  return (
    <>
      <Legend series={series} />
      <Bars
        label={text.title}
        areLines
        series={series}
        bars={points}
        span="day"
        format={money.named}
        formatTick={money.tick}
        leastTick={money.leastTick}
        times={{ head: text.head, full: dayOf, tick: (at) => dayOf(at).replace(/^\D+/, "") }}
      />
      <p class="faint">{limit ? `${text.budgetOf(limit.of)} ${text.settled}` : text.noLimit}</p>
    </>
  );
}
