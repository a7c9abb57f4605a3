// Small charts of the same time and filters as the large one: how requests ended, what was refused,
// how long the first token took, and what the prompt cache did. All but the refusals are from the
// sums that the page has.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ComponentChildren, JSX } from "preact";
import type { Reason } from "../../../../gen/gateway/common/v1/error_pb.ts";
import {
  Bucket,
  RefusalGroup,
  type RefusalRow,
  UsageService,
} from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { firstEventBoundsMs } from "../../../base/shown-figures.ts";
import { compact, count, percent } from "../format.ts";
import { useAllPages } from "../parts/all-pages.ts";
import { Bars, type BarsProps, Legend, type Point, type Series } from "../parts/bars.tsx";
import { boundText } from "../parts/first-token.ts";
import { Card } from "../parts/page.tsx";
import { refusalOf } from "../parts/refusals.ts";
import { noRefusals, notKept } from "../parts/refusals-kept.ts";
import { useSeen } from "../parts/seen.ts";
import { barsOf, nextSpan, type Span, startOf } from "../parts/timeline.ts";
import {
  addSums,
  type Compared,
  categoryBars,
  firstEventWithin,
  type Plan,
  savedIn,
  type TimedSums,
} from "../parts/usage-report.ts";
import { Skeleton, View } from "../parts/view.tsx";
import { words } from "../words.ts";
import { whyWords } from "../words-why.ts";
import type { Money } from "./unit.ts";
import type { Chosen } from "./usage-calls.ts";

const text = whyWords.multiples;
/** Pixels of the plots. */
const height = 96;
/** So many reasons have a colour of their own. */
const reasonsMax = 5;
/** A share is drawn in hundredths of a percent. */
const wholeShare = 10_000n;

type MultiplesProps = {
  readonly chosen: Chosen;
  readonly compared: Compared;
  readonly plan: Plan;
  /** The sums of the range. */
  readonly current: readonly TimedSums[];
};

export function Multiples(props: MultiplesProps): JSX.Element {
  const { chosen, compared, plan, current } = props;
  const { span } = plan;
  const times = { range: compared.range, span };
  const open = compared.isOpen ? startOf(span, compared.range.to) : undefined;
  const shared = { span, height, openFrom: open };
  const isByTag = Object.keys(chosen.filter.tags).length > 0;
  return (
    <Card title={text.title}>
      <div class="multiples columns">
        <Small
          {...shared}
          label={text.outcomes(span)}
          series={endings}
          bars={categoryBars(current, "requests", times)}
          format={(value) => words.usage.value.requests(count(value))}
          formatTick={compact}
        />
        <Refusals {...props} />
        {isByTag ? (
          <None label={text.firstToken(span)}>{text.notByTag}</None>
        ) : (
          <>
            <FirstToken {...shared} points={pointsOf(current, times, percentiles)} />
            <Saved
              {...shared}
              money={chosen.money}
              all={addSums(current).cacheSaved ?? 0n}
              points={pointsOf(current, times, (sums) => [savedIn(sums)])}
              isAllKept={current.every(isSavingKept)}
            />
          </>
        )}
        <Small
          {...shared}
          areLines
          label={text.cacheShare(span)}
          series={[{ id: "share", name: text.share, colour: "cat-read" }]}
          bars={pointsOf(current, times, shareIn)}
          format={shareText}
          formatTick={shareText}
        />
      </div>
    </Card>
  );
}

const { completed, failed, cut } = words.usage.endings;
const endings: readonly Series[] = [
  { id: "completed", name: completed, colour: "end-completed" },
  { id: "failed", name: failed, colour: "end-failed" },
  { id: "cut", name: cut, colour: "end-cut" },
];

type Values = Point["values"];
type Times = { readonly range: Compared["range"]; readonly span: Span };

/** The points of lines, one for each span of the range. */
function pointsOf(
  rows: readonly TimedSums[],
  { range, span }: Times,
  valuesOf: (sums: ReturnType<typeof addSums>) => Values,
): Point[] {
  const found = new Map<number, TimedSums[]>();
  for (const row of rows) {
    const at = startOf(span, row.from).getTime();
    found.set(at, [...(found.get(at) ?? []), row]);
  }
  const points: Point[] = [];
  for (let at = startOf(span, range.from); at < range.to; at = nextSpan(span, at))
    points.push({ from: at, values: valuesOf(addSums(found.get(at.getTime()) ?? [])) });
  return points;
}

const slowestMs = firstEventBoundsMs.at(-1) ?? 0;

/** Half and nearly all of the first events came within these milliseconds. One more: later. */
function percentiles(sums: ReturnType<typeof addSums>): Values {
  return [0.5, 0.95].map((share) => {
    const ms = firstEventWithin(sums, share);
    return ms === undefined ? undefined : BigInt(Math.min(ms, slowestMs + 1));
  });
}

function shareIn({ input, cacheRead }: ReturnType<typeof addSums>): Values {
  return [input === 0n ? undefined : (cacheRead * wholeShare) / input];
}

function isSavingKept(row: TimedSums): boolean {
  return row.sums.requests === 0n || savedIn(addSums([row])) !== undefined;
}

function shareText(value: bigint): string {
  return percent(Number(value) / Number(wholeShare));
}

type SharedProps = Pick<BarsProps, "span" | "height" | "openFrom">;

/** One of the charts, with its colours where it has several. */
function Small(props: BarsProps & { readonly note?: string | undefined }): JSX.Element {
  const { label, series, note } = props;
  return (
    <figure class="stack">
      <figcaption>{label}</figcaption>
      <Legend series={series} />
      <Bars {...props} />
      {note && <p class="faint">{note}</p>}
    </figure>
  );
}

function None({
  label,
  children,
}: {
  readonly label: string;
  readonly children: ComponentChildren;
}) {
  return (
    <figure class="stack">
      <figcaption>{label}</figcaption>
      <p class="muted">{children}</p>
    </figure>
  );
}

function FirstToken({ points, ...shared }: SharedProps & { readonly points: readonly Point[] }) {
  const textOf = (ms: bigint) => boundText(ms > BigInt(slowestMs) ? Infinity : Number(ms));
  return (
    <Small
      {...shared}
      areLines
      label={text.firstToken(shared.span)}
      series={[
        { id: "p50", name: text.half, colour: "cat-input" },
        { id: "p95", name: text.slow, colour: "cat-output" },
      ]}
      bars={points}
      format={textOf}
      formatTick={(ms) => `${Number(ms) / 1000} s`}
      leastTick={100n}
    />
  );
}

type SavedProps = SharedProps & {
  readonly points: readonly Point[];
  readonly money: Money;
  /** Of the whole range, in nano-credits. */
  readonly all: bigint;
  readonly isAllKept: boolean;
};

function Saved({ points, money, all, isAllKept, ...shared }: SavedProps): JSX.Element {
  const micro = all / 1_000n;
  const sum = micro < 0n ? text.lostNote(money.named(-micro)) : text.savedNote(money.named(micro));
  return (
    <Small
      {...shared}
      areLines
      label={text.cacheSaved(shared.span)}
      series={[{ id: "saved", name: text.saved, colour: "cat-read" }]}
      bars={points}
      format={money.named}
      formatTick={money.tick}
      leastTick={money.leastTick}
      note={isAllKept ? sum : `${sum} ${text.savedLacks}`}
    />
  );
}

const buckets = { hour: Bucket.HOUR, day: Bucket.DAY, month: Bucket.MONTH } as const;

/** The refused requests by reason. They have a key, and no model or tag. */
function Refusals({ chosen, compared, plan }: MultiplesProps): JSX.Element {
  const [place, isSeen] = useSeen();
  const { range, isOpen } = compared;
  const { accountId, keyIds } = chosen.filter;
  const request = {
    ...{ accountId, keyIds, bucket: buckets[plan.bucket], groupBy: [RefusalGroup.REASON] },
    startAt: timestampFromDate(range.from),
    ...(!isOpen && { endAt: timestampFromDate(range.to) }),
  };
  const call = useAllPages(
    UsageService.method.queryRefusals,
    isSeen ? request : undefined,
    ({ rows }) => rows,
    { isLive: isOpen },
  );
  const label = text.refusals(plan.span);
  const of = (rows: readonly RefusalRow[], note: string | undefined) => (
    <Small
      {...stacksOf(rows, { range, span: plan.span })}
      {...{ label, span: plan.span, height }}
      openFrom={isOpen ? startOf(plan.span, range.to) : undefined}
      format={(value) => words.usage.value.requests(count(value))}
      formatTick={compact}
      note={note}
    />
  );
  return (
    <section ref={place}>
      <View call={call} skeleton={<Skeleton rows={3} />}>
        {({ items, first }) => {
          const lacks = notKept(first, range);
          return items.length === 0 ? (
            <None label={label}>{noRefusals(text.noRefusals, lacks)}</None>
          ) : (
            of(items, lacks)
          );
        }}
      </View>
    </section>
  );
}

function stacksOf(rows: readonly RefusalRow[], { range, span }: Times) {
  const totals = new Map<Reason, bigint>();
  for (const { reason, requests } of rows)
    totals.set(reason, (totals.get(reason) ?? 0n) + requests);
  const reasons = [...totals].sort(([, a], [, b]) => Number(b - a)).map(([reason]) => reason);
  const own = reasons.slice(0, reasonsMax);
  const bars = rows.map(({ startAt: from, reason, requests }) => {
    const values = Array<bigint>(own.length + 1).fill(0n);
    const found = own.indexOf(reason);
    values[found === -1 ? own.length : found] = requests;
    return { from: new Date(Number(from?.seconds ?? 0n) * 1000), values };
  });
  const all: Series[] = [
    ...own.map((reason, index) => ({
      id: String(reason),
      name: refusalOf(reason).label,
      colour: `series-${index + 1}`,
    })),
    { id: "", name: words.usage.rest(count(reasons.length - own.length)), colour: "series-rest" },
  ];
  const series = reasons.length > own.length ? all : all.slice(0, -1);
  return { series, bars: barsOf(bars, { span, ...range, series: own.length + 1 }) };
}
