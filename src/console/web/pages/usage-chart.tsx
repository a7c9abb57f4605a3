// The chart of the page of usage: by category, or by name with a colour for the largest.

import type { JSX } from "preact";
import type { UsageRow } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { compact, count } from "../format.ts";
import { Bars, Legend, type Series } from "../parts/bars.tsx";
import { Segments } from "../parts/choices.tsx";
import { optionsOf } from "../parts/filters.tsx";
import { type KeyText, keyText } from "../parts/key-names.ts";
import { Card } from "../parts/page.tsx";
import { type Bar, nextSpan } from "../parts/timeline.ts";
import {
  type Category,
  type Compared,
  categoriesOf,
  categoryBars,
  edgeText,
  hiddenText,
  type Measure,
  namedBars,
  type Period,
  type Plan,
  type TimedSums,
  timed,
} from "../parts/usage-report.ts";
import { words } from "../words.ts";
import { whyWords as text } from "../words-why.ts";
import { type Chosen, type Grouping, nameIn, type UsageCalls } from "./usage-calls.ts";

const categoryClasses: Readonly<Record<Category, string>> = {
  input: "cat-input",
  output: "cat-output",
  thinking: "cat-thinking",
  cacheWrite5m: "cat-write-5m",
  cacheWrite1h: "cat-write-1h",
  cacheRead: "cat-read",
  cache: "cat-read",
  completed: "end-completed",
  failed: "end-failed",
  cut: "end-cut",
};

function categorySeries(measure: Measure): Series[] {
  const names = { ...words.usage.categories, ...words.usage.endings };
  return categoriesOf[measure].map((id) => ({ id, name: names[id], colour: categoryClasses[id] }));
}

function namedSeries(
  ids: readonly string[],
  {
    by,
    second,
    keys,
    others,
  }: Grouping & {
    readonly keys: ReadonlyMap<string, KeyText>;
    readonly others: number;
  },
): Series[] {
  const nameOf = (id: string) =>
    id
      .split("\t")
      .map((one, place) => ([by, second][place] === "key" ? keyText(one, keys.get(one)) : one))
      .join(" · ");
  return [
    ...ids.map((id, index) => ({ id, name: nameOf(id), colour: `series-${index + 1}` })),
    { id: "", name: words.usage.rest(count(others)), colour: "series-rest" },
  ].filter(({ id }) => id !== "" || others > 0);
}

export type ReportProps = {
  readonly setQuery: (changes: { in?: string; hide?: string; at?: string } & Days) => void;
  readonly chosen: Chosen;
  readonly calls: UsageCalls;
  readonly keys: ReadonlyMap<string, KeyText>;
  readonly compared: Compared;
  readonly plan: Plan;
};

type Days = { readonly period?: Period; readonly from?: string; readonly to?: string };

type ChartProps = ReportProps & {
  /** The start of the bar that is open. */
  readonly openedAt: Date | undefined;
  readonly current: readonly TimedSums[];
  /** Of the models, keys or values that have colours of their own. */
  readonly named: readonly UsageRow[];
  readonly rows: readonly UsageRow[];
};

/** The bars of the range, which can be opened and chosen, and whose parts can be left out. */
export function UsageChart(props: ChartProps): JSX.Element {
  const { setQuery, chosen, plan, compared, openedAt } = props;
  const { measure, money, hidden } = chosen;
  const stacks = stacksOf(props);
  const isShown = ({ id }: Series) => !hidden.has(id);
  const series = stacks.series.filter(isShown);
  const bars = stacks.bars.map(({ from, values }) => ({
    from,
    values: values.filter((_, part) => {
      const one = stacks.series[part];
      return one !== undefined && isShown(one);
    }),
  }));
  const isMoney = measure === "credits";
  const label = isMoney
    ? `${text.moneyPer[money.unit]} ${plan.span}`
    : words.usage.chart(measure, plan.span);
  const toggle = (id: string, alone: boolean) => {
    const others = stacks.series.map((one) => one.id).filter((one) => one !== id);
    const isAlone = others.every((one) => hidden.has(one)) && !hidden.has(id);
    const next = alone
      ? isAlone
        ? []
        : others
      : hidden.has(id)
        ? others.filter((one) => hidden.has(one))
        : [...hidden, id];
    setQuery({ hide: hiddenText(next) });
  };
  return (
    <Card
      title={label}
      tools={
        <Segments
          label={words.usage.measure}
          value={measure}
          onInput={(value) => setQuery({ in: value, hide: "" })}
          options={optionsOf({ ...words.usage.measures, credits: text.units[money.unit] })}
        />
      }
    >
      <Legend series={stacks.series} hidden={hidden} onToggle={toggle} />
      <Bars
        label={label}
        series={series}
        bars={bars}
        span={plan.span}
        openFrom={compared.isOpen ? bars.at(-1)?.from : undefined}
        format={(value) =>
          isMoney ? money.named(value) : words.usage.value[measure](count(value))
        }
        formatTick={(value) => (isMoney ? money.tick(value) : compact(value))}
        leastTick={isMoney ? money.leastTick : 1n}
        openedAt={openedAt}
        onOpen={(from) =>
          setQuery({ at: from.getTime() === openedAt?.getTime() ? "" : edgeText(from, "from") })
        }
        onRange={(first, last) => setQuery(rangeText(first, last, props))}
      />
      <p class="faint">
        {text.hint} {text.legendHint}
      </p>
      {chosen.bucket === "day" && plan.span === "week" && <p class="faint">{words.usage.weeks}</p>}
    </Card>
  );
}

/** The range from one bar to another, as the address has it. */
function rangeText(
  first: Date,
  last: Date,
  { compared, plan }: ReportProps,
): Days & { at: string } {
  const { range } = compared;
  const from = first < range.from ? range.from : first;
  const end = nextSpan(plan.span, last);
  const to = end < range.to || compared.isOpen ? end : range.to;
  return { period: "custom", from: edgeText(from, "from"), to: edgeText(to, "to"), at: "" };
}

/** The colours of the chart and its bars: by category, or by name with one for all others. */
function stacksOf({ chosen, calls, keys, compared, plan, current, named, rows }: ChartProps): {
  readonly series: readonly Series[];
  readonly bars: readonly Bar[];
} {
  const { by, second, measure } = chosen;
  const times = { range: compared.range, span: plan.span };
  if (by === "category")
    return { series: categorySeries(measure), bars: categoryBars(current, measure, times) };
  const names = rows.length > 0 ? calls.largest : [];
  const sums = named.flatMap((row) => timed(row, nameIn(row, chosen)));
  return {
    series: namedSeries(names, { by, second, keys, others: rows.length - names.length }),
    bars: namedBars({ all: current, named: sums }, names, measure, times),
  };
}
