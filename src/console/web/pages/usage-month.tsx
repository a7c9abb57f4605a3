// What was spent of this month up to each day, against the same days of last month and against the
// budget of the pool or the key.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Budget, BudgetWindow_Name } from "../../../../gen/gateway/common/v1/budget_pb.ts";
import { KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import {
  Bucket,
  UsageGroup,
  type UsageRow,
  UsageService,
} from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { useCall } from "../api.ts";
import { useAllPages } from "../parts/all-pages.ts";
import { Bars, Legend, type Point, type Series } from "../parts/bars.tsx";
import { Segments } from "../parts/choices.tsx";
import { optionsOf } from "../parts/filters.tsx";
import { Card } from "../parts/page.tsx";
import { familyOf, type PoolName, poolNameOf } from "../parts/pools.ts";
import { useSeen } from "../parts/seen.ts";
import { startOf } from "../parts/timeline.ts";
import { daysOfMonth } from "../parts/usage-report.ts";
import { Skeleton, View } from "../parts/view.tsx";
import { account } from "../session.ts";
import { whyWords } from "../words-why.ts";
import { type Chosen, rowsOf } from "./usage-calls.ts";

const text = whyWords.month;
const dayMs = 86_400_000;

/** Waits until somebody scrolls to it. */
export function MonthSoFar({ chosen }: { readonly chosen: Chosen }): JSX.Element {
  const [place, isSeen] = useSeen();
  const [chosenPool, setPool] = useState<"" | PoolName>("");
  const { filter } = chosen;
  const now = new Date();
  const start = startOf("month", now);
  const before = startOf("month", new Date(start.getTime() - 1));
  const request = {
    ...{ ...filter, startAt: timestampFromDate(before), bucket: Bucket.DAY },
    groupBy: [UsageGroup.FAMILY],
  };
  const call = useAllPages(UsageService.method.queryUsage, isSeen ? request : undefined, rowsOf, {
    isLive: true,
  });
  const found = call.data?.items ?? [];
  const families = [...new Set(found.map(({ family }) => poolNameOf(family)))];
  // With another filter, a pool that was chosen may have nothing, and no button to leave it.
  const pool = families.length > 1 ? chosenPool : (families[0] ?? "");
  const budget = useBudget(chosen, pool, isSeen && families.length > 0);
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
          const isOfAll = families.length < 2 || pool === "";
          const rows = isOfAll ? items : items.filter(({ family }) => family === familyOf[pool]);
          return <Month rows={rows} {...{ chosen, now, start, before, budget }} />;
        }}
      </View>
    </Card>
  );
}

/** The budget that binds what is shown, as far as it is known. Undefined: nothing is said of it. */
type Shown = { readonly micro?: bigint | undefined; readonly note: string } | undefined;

/** The budget of the key or else of the pool. Budgets are of all models and tags. */
function useBudget({ filter }: Chosen, pool: "" | PoolName, isWanted: boolean): Shown {
  const { accountId } = account.value;
  const [keyId] = filter.keyIds;
  const isPart = filter.models.length > 0 || Object.keys(filter.tags).length > 0;
  const isAsked = isWanted && !isPart;
  const pools = useCall(
    UsageService.method.getForecast,
    isAsked && keyId === undefined && pool !== "" ? { accountId } : undefined,
  );
  const key = useCall(
    KeysService.method.getKey,
    isAsked && keyId !== undefined ? { keyId } : undefined,
  );
  if (!isAsked) return undefined;
  if (keyId !== undefined) return key.data?.key && shownOf(key.data.key.budget, text.ofKey);
  if (pool === "") return { note: text.choosePool };
  const found = pools.data?.forecasts.find(({ family }) => family === familyOf[pool]);
  return found && shownOf(found.budget, text.ofPool(pool));
}

function shownOf(budget: Budget | undefined, of: string): Shown {
  const micro = monthlyOf(budget);
  if (micro === undefined) return { note: text.noLimit(of) };
  return { micro, note: `${text.budgetOf(of)} ${text.settled}` };
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
  readonly budget: Shown;
};

function Month({ rows, chosen, now, start, before, budget }: MonthProps): JSX.Element {
  const { money } = chosen;
  const limit = budget?.micro;
  const points: Point[] = daysOfMonth(rows, { now, start, before }).map(
    ({ from, sum, sumBefore }) => ({
      from,
      values: [sum, sumBefore, ...(limit === undefined ? [] : [limit])],
    }),
  );
  const series: Series[] = [
    { id: "now", name: text.now, colour: "cat-output" },
    { id: "before", name: text.before, colour: "series-rest" },
    ...(limit === undefined ? [] : [{ id: "limit", name: text.limit, colour: "line-limit" }]),
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
      {budget && <p class="faint">{budget.note}</p>}
    </>
  );
}
