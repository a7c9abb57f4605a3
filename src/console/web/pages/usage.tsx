// What was used, over time: by token category, model or key, in credits, tokens or requests.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type {
  QueryErrorsResponse,
  UsageRow,
} from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { clock, compact, count, credits, fieldDay, percent } from "../format.ts";
import { Bars, Legend, type Series } from "../parts/bars.tsx";
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
import { hintOf, type KeyText, useKeys } from "../parts/key-names.ts";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { refusalOf } from "../parts/refusals.ts";
import { KeyName } from "../parts/small.tsx";
import { type Column, type Order, Table } from "../parts/table.tsx";
import { parseTags, tagsText } from "../parts/tags.ts";
import type { Bar } from "../parts/timeline.ts";
import { type By, type Chosen, nameIn, type UsageCalls, useUsage } from "../parts/usage-calls.ts";
import {
  addSums,
  type Category,
  type Compared,
  categoriesOf,
  categoryBars,
  changeOf,
  firstEventWithin,
  isWithin,
  type Measure,
  namedBars,
  type Period,
  type Plan,
  planOf,
  rangeOf,
  type TimedSums,
  type TokenSide,
  timed,
  tokensOf,
} from "../parts/usage-report.ts";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href, type PageProps, useQuery } from "../router.ts";
import { account, bornAt, can } from "../session.ts";
import { words } from "../words.ts";
import { utc } from "../zone.ts";

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
};

type Query = Readonly<typeof defaults>;

/** What the address says: what is shown of whom, in which parts and unit. */
function chosenIn(query: Query): Chosen {
  const period: Period = choiceOf(query.period, words.usage.periods, "30d");
  const wantedBy: By = choiceOf(query.by, words.usage.bys, "category");
  // `team` names a tag, `team=a` the requests with this value too.
  const [tag = ""] = query.tag.split("=");
  const bucket = choiceOf(query.bucket, words.usage.buckets, "");
  const now = new Date();
  const compared = rangeOf(period, now, query, bornAt());
  return {
    ...{ period, wantedBy, tag, bucket, compared },
    by: wantedBy === "tag" && tag === "" ? "category" : wantedBy,
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
            period: value,
            ...(value === "custom" && compared && daysOf(compared.range)),
          })
        }
        options={optionsOf(words.usage.periods)}
      />
      <Segments
        label={words.usage.by}
        value={wantedBy}
        onInput={(value) => setQuery({ by: value })}
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
      <ChoiceFilter
        label={words.usage.bucket}
        value={bucket}
        onInput={(value) => setQuery({ bucket: value })}
        options={optionsOf(words.usage.buckets)}
      />
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
  const { setQuery, chosen, calls, keys, compared, plan } = props;
  const { by, period, tag } = chosen;
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
          const { current, before } = splitSums(shown.items, compared, plan);
          const until = list.last.completeUntil ?? shown.last.completeUntil;
          return (
            <>
              <Totals current={current} before={before} period={period} />
              <Chart {...props} current={current} named={names.items} rows={list.items} />
              <Rows
                rows={list.items}
                by={by}
                tag={tag}
                keys={keys}
                isWhole={list.isLast}
                note={until && words.usage.completeUntil(clock(until, utc))}
              />
            </>
          );
        }}
      </View>
      {calls.refused && <Refused errors={calls.refused} />}
    </>
  );
}

/** The sums of the range, and of the one before if that was asked for. */
function splitSums(rows: readonly UsageRow[], { range, before }: Compared, { askFrom }: Plan) {
  const all = rows.flatMap((row) => timed(row));
  // Without the range before, all rows count: the first bucket may begin before the range.
  if (askFrom >= range.from) return { current: all, before: undefined };
  return { current: all.filter(isWithin(range)), before: all.filter(isWithin(before)) };
}

/** The first and the last day of a range, as fields hold them. */
function daysOf({ from, to }: Compared["range"]): { from: string; to: string } {
  return { from: fieldDay(from), to: fieldDay(new Date(to.getTime() - 1)) };
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
}: {
  readonly current: readonly TimedSums[];
  readonly before: readonly TimedSums[] | undefined;
  readonly period: Period;
}) {
  const sums = addSums(current);
  const incomplete = sums.failed + sums.cut;
  const share = sums.input === 0n ? 0 : Number(sums.cacheRead) / Number(sums.input);
  const median = firstEventWithin(sums, 0.5);
  const slowest = firstEventWithin(sums, 0.99);
  return (
    <Figures>
      <Figure
        label={words.usage.spent}
        value={credits(sums.amount)}
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
    keys,
    others,
  }: {
    readonly by: By;
    readonly keys: ReadonlyMap<string, KeyText>;
    readonly others: number;
  },
): Series[] {
  const nameOf = (id: string) => (by === "key" ? keyText(id, keys.get(id)) : id);
  return [
    ...ids.map((id, index) => ({ id, name: nameOf(id), colour: `series-${index + 1}` })),
    { id: "", name: words.usage.rest(count(others)), colour: "series-rest" },
  ].filter(({ id }) => id !== "" || others > 0);
}

function keyText(id: string, key: KeyText | undefined): string {
  return key?.name || hintOf(key) || id;
}

const oneCredit = 1_000_000n;

type ChartProps = ReportProps & {
  readonly current: readonly TimedSums[];
  /** Of the models, keys or values that have colours of their own. */
  readonly named: readonly UsageRow[];
  readonly rows: readonly UsageRow[];
};

function Chart(props: ChartProps): JSX.Element {
  const { setQuery, chosen, plan, compared } = props;
  const { measure } = chosen;
  const { series, bars } = stacksOf(props);
  const label = words.usage.chart(measure, plan.span);
  const unit = words.usage.value[measure];
  const isCredits = measure === "credits";
  return (
    <Card
      title={label}
      tools={
        <Segments
          label={words.usage.measure}
          value={measure}
          onInput={(value) => setQuery({ in: value })}
          options={optionsOf(words.usage.measures)}
        />
      }
    >
      <Legend series={series} />
      <Bars
        label={label}
        series={series}
        bars={bars}
        span={plan.span}
        openFrom={compared.isOpen ? bars.at(-1)?.from : undefined}
        format={(value) => unit(isCredits ? credits(value) : count(value))}
        formatTick={(value) => (isCredits ? tickOfCredits(value) : compact(value))}
        leastTick={isCredits ? oneCredit / 1000n : 1n}
      />
      {chosen.bucket === "day" && plan.span === "week" && <p class="faint">{words.usage.weeks}</p>}
    </Card>
  );
}

/** The colours of the chart and its bars: by category, or by name with one for all others. */
function stacksOf({ chosen, calls, keys, compared, plan, current, named, rows }: ChartProps): {
  readonly series: readonly Series[];
  readonly bars: readonly Bar[];
} {
  const { by, measure } = chosen;
  const times = { range: compared.range, span: plan.span };
  if (by === "category")
    return { series: categorySeries(measure), bars: categoryBars(current, measure, times) };
  const names = rows.length > 0 ? calls.largest : [];
  const sums = named.flatMap((row) => timed(row, nameIn(row, by)));
  return {
    series: namedSeries(names, { by, keys, others: rows.length - names.length }),
    bars: namedBars({ all: current, named: sums }, names, measure, times),
  };
}

/** `0.005`, `20`, `1.5 M` */
function tickOfCredits(micro: bigint): string {
  if (micro >= oneCredit) return compact(micro / oneCredit);
  return String(Number(micro) / Number(oneCredit));
}

const rowsAtOnce = 50;

type RowsProps = {
  readonly rows: readonly UsageRow[];
  readonly by: By;
  readonly tag: string;
  readonly keys: ReadonlyMap<string, KeyText>;
  readonly note: string | undefined;
  readonly isWhole: boolean;
};

function Rows({ rows, by, tag, keys, note, isWhole }: RowsProps) {
  const [order, setOrder] = useState<Order>({ by: "credits", descending: true });
  const [shown, setShown] = useState(rowsAtOnce);
  const kind = by === "category" ? "key" : by;
  return (
    <Card title={words.usage.table[kind]} note={note} flush>
      <div class="dense">
        <Table
          name={`usage-${kind}`}
          caption={words.usage.table[kind]}
          columns={columnsOf(kind, tag, keys, rows)}
          rows={rows}
          rowsMax={shown}
          keyOf={(row) => row.keyId || row.model || row.tagValue}
          sort={{ ...order, onSort: (name, descending) => setOrder({ by: name, descending }) }}
        />
      </div>
      {rows.length > shown && (
        <p class="table-foot row">
          <Button kind="quiet" onClick={() => setShown(shown + rowsAtOnce)}>
            {words.usage.showMore(Math.min(rowsAtOnce, rows.length - shown))}
          </Button>
        </p>
      )}
      {!isWhole && <p class="table-foot faint">{words.usage.stillLoading}</p>}
    </Card>
  );
}

function columnsOf(
  kind: Exclude<By, "category">,
  tag: string,
  keys: ReadonlyMap<string, KeyText>,
  rows: readonly UsageRow[],
): Column<UsageRow>[] {
  const { head, categories } = words.usage;
  const number = (
    name: string,
    label: string,
    valueIn: (row: UsageRow) => bigint,
    format: (value: bigint) => string,
  ): Column<UsageRow> => ({
    name,
    head: label,
    cell: (row) => format(valueIn(row)),
    foot: format(rows.reduce((sum, row) => sum + valueIn(row), 0n)),
    end: true,
    sortBy: valueIn,
  });
  const tokens = (side: TokenSide) => (row: UsageRow) =>
    row.sums ? tokensOf(row.sums, [side]) : 0n;
  const cacheRead = (row: UsageRow) => row.sums?.usage?.cacheRead ?? 0n;
  const cacheWrite = (row: UsageRow) => tokens("cache")(row) - cacheRead(row);
  const cacheDetails = (row: UsageRow) =>
    words.usage.cacheDetails(compact(cacheWrite(row)), compact(cacheRead(row)));
  return [
    nameColumn(kind, tag, keys),
    number(
      "credits",
      head.credits,
      (row) => row.sums?.amountMicrocredits ?? 0n,
      (n) => credits(n),
    ),
    number("requests", head.requests, (row) => row.sums?.requests ?? 0n, count),
    number(
      "not-completed",
      head.notCompleted,
      (row) => (row.sums?.failed ?? 0n) + (row.sums?.cut ?? 0n),
      count,
    ),
    number("input", categories.input, tokens("input"), compact),
    number("output", categories.output, tokens("output"), compact),
    number("thinking", categories.thinking, tokens("thinking"), compact),
    {
      ...number("cache", categories.cache, tokens("cache"), compact),
      cell: (row) => <span title={cacheDetails(row)}>{compact(tokens("cache")(row))}</span>,
    },
    { ...number("cache-write", head.cacheWrite, cacheWrite, compact), isExtra: true },
    { ...number("cache-read", categories.cacheRead, cacheRead, compact), isExtra: true },
  ];
}

/** What a row is of. */
function nameColumn(
  kind: Exclude<By, "category">,
  tag: string,
  keys: ReadonlyMap<string, KeyText>,
): Column<UsageRow> {
  return {
    name: kind,
    head: kind === "tag" ? tag : words.usage.head[kind],
    foot: words.usage.total[kind],
    sortBy: (row) =>
      kind === "key" ? keyText(row.keyId, keys.get(row.keyId)) : row.model || row.tagValue,
    cell: (row) =>
      kind === "tag" ? (
        <TagValue tag={tag} value={row.tagValue} />
      ) : kind === "model" ? (
        <a class="row-link clipped" href={href("requests", { model: row.model })} title={row.model}>
          {row.model}
        </a>
      ) : (
        <KeyName
          name={keys.get(row.keyId)?.name ?? ""}
          hint={hintOf(keys.get(row.keyId)) || row.keyId}
          href={href(`keys/${row.keyId}`)}
        />
      ),
  };
}

/** The rest, and `(other)`, are requests that no list can be asked for. */
function TagValue({ tag, value }: { readonly tag: string; readonly value: string }) {
  if (value === "" || value === "(other)")
    return <span class="faint">{value || words.usage.noTag}</span>;
  return (
    <a class="row-link" href={href("requests", { tag: `${tag}=${value}` })}>
      {value}
    </a>
  );
}

function Refused({ errors }: { readonly errors: QueryErrorsResponse }) {
  const { usage } = words;
  const { rows, total } = errors;
  return (
    <Card title={usage.refused} note={usage.refusedNote} flush>
      {rows.length === 0 ? (
        <p class="card-text muted">{usage.refusedNone}</p>
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
          keyOf={({ reason }) => reason}
        />
      )}
    </Card>
  );
}
