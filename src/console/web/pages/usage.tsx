// What was used, over time: by token category, model or key, in credits, tokens or requests.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { QueryRefusalsResponse } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { clock, compact, count, fieldDay, percent } from "../format.ts";
import { Button, Copy, LinkButton } from "../parts/button.tsx";
import { Segments } from "../parts/choices.tsx";
import {
  ChoiceFilter,
  choiceOf,
  DayFilter,
  Filters,
  ModelFilter,
  optionsOf,
  TextFilter,
  useKnownTags,
} from "../parts/filters.tsx";
import { boundText } from "../parts/first-token.ts";
import { KeyFilter } from "../parts/key-filter.tsx";
import { type KeyText, useKeys } from "../parts/key-names.ts";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { refusalOf } from "../parts/refusals.ts";
import { noRefusals, notKept } from "../parts/refusals-kept.ts";
import { Table } from "../parts/table.tsx";
import { parseTags, tagsText } from "../parts/tags.ts";
import { nextSpan, startOf } from "../parts/timeline.ts";
import {
  addSums,
  type Compared,
  changeOf,
  edgeOf,
  firstEventWithin,
  hiddenIn,
  type Period,
  type Plan,
  planOf,
  rangeOf,
  splitSums,
  type TimedSums,
  timed,
} from "../parts/usage-report.ts";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href, type PageProps, useQuery } from "../router.ts";
import { account, bornAt, can } from "../session.ts";
import { words } from "../words.ts";
import { whyWords as text } from "../words-why.ts";
import { utc } from "../zone.ts";
import { type Money, moneyIn } from "./unit.ts";
import { type By, type Chosen, type Second, type UsageCalls, useUsage } from "./usage-calls.ts";
import { UsageChart } from "./usage-chart.tsx";
import { MonthSoFar } from "./usage-month.tsx";
import { Multiples } from "./usage-multiples.tsx";
import { type Opened, OpenedBar } from "./usage-opened.tsx";
import { UsageTable } from "./usage-table.tsx";
import { Views } from "./views.tsx";

const defaults = {
  period: "30d",
  by: "category",
  in: "credits",
  bucket: "",
  from: "",
  to: "",
  key: "",
  model: "",
  tag: "",
  /** By what the parts are split once more. */
  split: "",
  unit: "credits",
  /** Which parts are left out. */
  hide: "",
  /** The start of the bar that is open. */
  at: "",
};

type Query = Readonly<typeof defaults>;

/** What the address says: what is shown of whom, in which parts and unit. */
function chosenIn(query: Query): Chosen {
  const period: Period = choiceOf(query.period, words.usage.periods, "30d");
  const wantedBy: By = choiceOf(query.by, words.usage.bys, "category");
  // `team` names a tag, `team=a` the requests with this value too.
  const [tag = ""] = query.tag.split("=");
  const bucket = choiceOf(query.bucket, words.usage.buckets, "");
  const by = wantedBy === "tag" && tag === "" ? "category" : wantedBy;
  const second: Second = choiceOf(query.split, text.seconds, "");
  const now = new Date();
  const compared = rangeOf(period, now, query, bornAt());
  return {
    ...{ period, wantedBy, tag, bucket, compared },
    by,
    second: by === "category" || second === by ? "" : second,
    money: moneyIn(choiceOf(query.unit, text.units, "credits")),
    hidden: hiddenIn(query.hide),
    measure: choiceOf(query.in, words.usage.measures, "credits"),
    plan: compared && planOf(compared, bucket, now),
    filter: {
      accountId: account.value.accountId,
      keyIds: query.key === "" ? [] : [query.key],
      models: query.model === "" ? [] : [query.model],
      tags: query.tag.includes("=") ? parseTags(query.tag) : {},
    },
  };
}

export function Usage(_: PageProps): JSX.Element {
  const [query, setQuery] = useQuery(defaults);
  const chosen = chosenIn(query);
  const calls = useUsage(chosen);
  const keys = useKeys([...calls.rows.map(({ keyId }) => keyId), query.key]);
  const { compared, plan } = chosen;
  const props = { query, setQuery, chosen, calls, keys };
  return (
    <>
      <Head title={words.usage.title} tools={<Tools {...props} />} />
      <p class="intro muted">{words.usage.intro}</p>
      <UsageFilters {...props} />
      {compared && plan ? (
        <Report {...props} compared={compared} plan={plan} />
      ) : (
        <p role="alert" class="muted">
          {words.usage.rangeWrong}
        </p>
      )}
    </>
  );
}

type PartProps = {
  readonly query: Query;
  readonly setQuery: (changes: Partial<Query>, settings?: { replace?: boolean }) => void;
  readonly chosen: Chosen;
  readonly calls: UsageCalls;
  readonly keys: ReadonlyMap<string, KeyText>;
};

function Tools({ setQuery, chosen }: PartProps): JSX.Element {
  const { period, wantedBy, compared } = chosen;
  return (
    <>
      <Segments
        label={words.usage.period}
        value={period}
        onInput={(value) =>
          // A range of one's own begins as the last one.
          setQuery({
            ...{ period: value, at: "" },
            ...(value === "custom" && compared && daysOf(compared.range)),
          })
        }
        options={optionsOf(words.usage.periods)}
      />
      <Segments
        label={words.usage.by}
        value={wantedBy}
        onInput={(value) => setQuery({ by: value, hide: "" })}
        options={optionsOf(words.usage.bys)}
      />
    </>
  );
}

function UsageFilters({ query, setQuery, chosen, keys }: PartProps): JSX.Element {
  const { period, by, wantedBy, bucket } = chosen;
  const [areTagsWanted, setTagsWanted] = useState(false);
  const tags = useKnownTags(areTagsWanted || wantedBy === "tag");
  const tagNames = [...new Set(tags.map((text) => text.replace(/=.*/s, "")))];
  const [firstTag] = tagNames;
  useEffect(() => {
    // Of what is known, something is shown at once.
    if (wantedBy === "tag" && query.tag === "" && firstTag !== undefined)
      setQuery({ tag: firstTag }, { replace: true });
  }, [wantedBy, query.tag, firstTag]);
  return (
    <Filters>
      {period === "custom" && (
        <>
          <DayFilter
            label={words.usage.from}
            value={query.from}
            onInput={(value) => setQuery({ from: value })}
          />
          <DayFilter
            label={words.usage.to}
            value={query.to}
            onInput={(value) => setQuery({ to: value })}
          />
        </>
      )}
      <KeyFilter
        keyId={query.key}
        known={keys.get(query.key)}
        onInput={(key) => setQuery({ key })}
      />
      <ModelFilter value={query.model} onInput={(model) => setQuery({ model })} />
      <TextFilter
        label={words.requests.tag}
        value={query.tag}
        mode="text"
        offered={[...tagNames, ...tags]}
        onFocus={() => setTagsWanted(true)}
        problem={wantedBy === by ? undefined : words.usage.tagNeeded}
        onInput={(value) => setQuery({ tag: value.trim() })}
      />
      {by !== "category" && (
        <ChoiceFilter
          label={text.second}
          value={chosen.second}
          onInput={(split) => setQuery({ split, hide: "" })}
          options={optionsOf(text.seconds).filter(({ value }) => value !== by)}
        />
      )}
      <ChoiceFilter
        label={words.usage.bucket}
        value={bucket}
        onInput={(value) => setQuery({ bucket: value, at: "" })}
        options={optionsOf(words.usage.buckets)}
      />
      <ChoiceFilter
        label={text.unit}
        value={chosen.money.unit}
        onInput={(unit) => setQuery({ unit })}
        options={optionsOf(text.units)}
      />
      <Views page="usage" />
      <Copy text={location.href} label={words.usage.copyLink} />
      {chosen.compared && (
        <LinkButton href={csvAddress(chosen, chosen.compared)} download>
          {words.usage.csv}
        </LinkButton>
      )}
    </Filters>
  );
}

type ReportProps = PartProps & { readonly compared: Compared; readonly plan: Plan };

/** The figures, the chart and the table, which are read and shown together. */
function Report(props: ReportProps): JSX.Element {
  const { query, setQuery, chosen, calls, keys, compared, plan } = props;
  const { period, money } = chosen;
  return (
    <>
      <View
        call={calls.report}
        skeleton={<Skeleton figures={4} chart rows={6} />}
        empty={([, list]) =>
          list.items.length === 0 ? (
            <Nothing period={period} onWiden={() => setQuery({ period: "13m" })} />
          ) : undefined
        }
        partial={([{ isLast }, list]) =>
          isLast && list.isLast ? undefined : words.usage.stillLoading
        }
      >
        {([shown, list, names]) => {
          const { current, before } = splitSums(
            shown.items.flatMap((row) => timed(row)),
            compared,
            plan,
          );
          const until = list.last.completeUntil ?? shown.last.completeUntil;
          const opened = openedIn(query.at, compared, plan);
          return (
            <>
              <Totals current={current} before={before} period={period} money={money} />
              <UsageChart
                {...props}
                current={current}
                named={names.items}
                rows={list.items}
                openedAt={opened?.bar}
              />
              {opened && (
                <OpenedBar
                  key={query.at}
                  {...{ query, chosen, opened, keys }}
                  span={plan.span}
                  onClose={() => setQuery({ at: "" })}
                />
              )}
              <Multiples {...{ chosen, compared, plan, current }} />
              <MonthSoFar chosen={chosen} />
              <UsageTable
                rows={list.items}
                chosen={chosen}
                keys={keys}
                isWhole={list.isLast}
                note={until && words.usage.completeUntil(clock(until, utc))}
              />
            </>
          );
        }}
      </View>
      {calls.refused && <Refused errors={calls.refused} range={compared.range} />}
    </>
  );
}

/** The first and the last day of a range, as fields hold them. */
function daysOf({ from, to }: Compared["range"]): { from: string; to: string } {
  return { from: fieldDay(from), to: fieldDay(new Date(to.getTime() - 1)) };
}

/** What an address says is open: a bar of the range, and the part of it that is in the range. */
function openedIn(at: string, { range, isOpen }: Compared, { span }: Plan): Opened | undefined {
  const bar = edgeOf(at, "from");
  if (!bar || startOf(span, bar) < bar || bar >= range.to) return undefined;
  const end = nextSpan(span, bar);
  if (end <= range.from) return undefined;
  return {
    bar,
    from: new Date(Math.max(bar.getTime(), range.from.getTime())),
    // The bar of now still grows.
    to: end <= range.to ? end : isOpen ? undefined : range.to,
  };
}

/** The file has the same range and filters as the page. */
function csvAddress({ filter, plan, by, tag }: Chosen, { range, isOpen }: Compared): string {
  const { accountId, keyIds, models, tags } = filter;
  const search = new URLSearchParams({
    account: accountId,
    from: range.from.toISOString(),
    ...(!isOpen && { to: range.to.toISOString() }),
    bucket: plan?.bucket ?? "day",
    ...(keyIds[0] && { key: keyIds[0] }),
    ...(models[0] && { model: models[0] }),
    ...(Object.keys(tags).length > 0 && { tag: tagsText(tags) }),
    ...(by === "tag" && { group_by_tag: tag }),
  });
  return `/console/export/usage.csv?${search}`;
}

function Nothing({ period, onWiden }: { readonly period: Period; readonly onWiden: () => void }) {
  const { empty } = words.usage;
  const action = can("member") ? (
    <LinkButton kind="main" href={href("keys", { new: "1" })}>
      {empty.action}
    </LinkButton>
  ) : undefined;
  const widen = <Button onClick={onWiden}>{empty.other}</Button>;
  return (
    <Empty title={empty.title} action={period === "13m" ? action : widen}>
      {empty.text}
    </Empty>
  );
}

function Totals({
  current,
  before,
  period,
  money,
}: {
  readonly current: readonly TimedSums[];
  readonly before: readonly TimedSums[] | undefined;
  readonly period: Period;
  readonly money: Money;
}) {
  const sums = addSums(current);
  const incomplete = sums.failed + sums.cut;
  const share = sums.input === 0n ? 0 : Number(sums.cacheRead) / Number(sums.input);
  const median = firstEventWithin(sums, 0.5);
  const slowest = firstEventWithin(sums, 0.99);
  return (
    <Figures>
      <Figure
        label={text.spent[money.unit]}
        value={money.text(sums.amount)}
        note={before && changeNote(sums.amount, addSums(before).amount, period)}
      />
      <Figure
        label={words.usage.requests}
        value={count(sums.requests)}
        note={
          incomplete === 0n
            ? words.usage.allCompleted
            : words.usage.notCompleted(count(sums.failed), count(sums.cut))
        }
      />
      <Figure
        label={words.usage.tokens}
        value={compact(sums.tokens)}
        note={words.usage.fromCache(percent(share))}
      />
      <Figure
        label={words.usage.firstToken}
        value={median === undefined ? words.requests.none : boundText(median)}
        note={
          slowest === undefined
            ? words.usage.firstTokenNone
            : words.usage.slowest(boundText(slowest))
        }
      />
    </Figures>
  );
}

function changeNote(now: bigint, before: bigint, period: Period): string {
  const { more, less, same, none, before: names } = words.usage;
  const change = changeOf(now, before);
  if (change === undefined) return none(names[period]);
  const text = percent(Math.round(Math.abs(change) * 100) / 100);
  if (Math.abs(change) < 0.005) return same(names[period]);
  return change > 0 ? more(text, names[period]) : less(text, names[period]);
}

type RefusedProps = { readonly errors: QueryRefusalsResponse; readonly range: Compared["range"] };

function Refused({ errors, range }: RefusedProps) {
  const { usage } = words;
  const { rows, total } = errors;
  const lacks = notKept(errors, range);
  const note = rows.length > 0 && lacks ? `${usage.refusedNote} ${lacks}` : usage.refusedNote;
  return (
    <Card title={usage.refused} note={note} flush>
      {rows.length === 0 ? (
        <p class="card-text muted">{noRefusals(usage.refusedNone, lacks)}</p>
      ) : (
        <Table
          caption={usage.refused}
          columns={[
            {
              name: "reason",
              head: usage.refusedHead.reason,
              sortBy: (row) => refusalOf(row.reason).label,
              cell: (row) => refusalOf(row.reason).label,
              foot: words.bars.total,
            },
            {
              name: "count",
              head: usage.refusedHead.count,
              sortBy: (row) => row.requests,
              end: true,
              cell: (row) => count(row.requests),
              foot: count(total ?? 0n),
            },
            {
              name: "advice",
              head: usage.refusedHead.last,
              cell: (row) => <span class="muted">{refusalOf(row.reason).advice}</span>,
            },
          ]}
          rows={[...rows].sort((a, b) => Number(b.requests - a.requests))}
          keyOf={({ reason }) => String(reason)}
        />
      )}
    </Card>
  );
}
