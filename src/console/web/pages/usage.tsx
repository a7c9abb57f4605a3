// What was used, over time: by token category, model or key, in credits, tokens or requests.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { useEffect, useState } from "preact/hooks";
import {
  BillingService,
  Bucket,
  type QueryErrorsResponse,
  type QueryUsageResponse,
  UsageGroup,
  type UsageRow,
} from "../../../../gen/gateway/billing/v1/billing_pb.ts";
import { firstEventBoundsMs } from "../../../base/shown-figures.ts";
import { together } from "../api.ts";
import { clock, compact, count, credits, percent } from "../format.ts";
import { useAllPages } from "../parts/all-pages.ts";
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
import { KeyFilter } from "../parts/key-filter.tsx";
import { hintOf, type KeyText, learnKeys, useKeys } from "../parts/key-names.ts";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { refusalOf } from "../parts/refusals.ts";
import { KeyName } from "../parts/small.tsx";
import { type Column, type Order, Table } from "../parts/table.tsx";
import { parseTags, tagsText } from "../parts/tags.ts";
import type { Bar } from "../parts/timeline.ts";
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
  measured,
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

type By = "category" | "model" | "key" | "tag";

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

const buckets = { hour: Bucket.HOUR, day: Bucket.DAY, month: Bucket.MONTH } as const;
/** So many models or keys have a colour of their own. */
const namedMax = 6;

const rowsOf = ({ rows, keys }: QueryUsageResponse) => {
  learnKeys(keys);
  return rows;
};

export function Usage(_: PageProps) {
  const [query, setQuery] = useQuery(defaults);
  const period: Period = choiceOf(query.period, words.usage.periods, "30d");
  const wantedBy: By = choiceOf(query.by, words.usage.bys, "category");
  // `team` names a tag, `team=a` the requests with this value too.
  const [tag = ""] = query.tag.split("=");
  const by = wantedBy === "tag" && tag === "" ? "category" : wantedBy;
  const measure: Measure = choiceOf(query.in, words.usage.measures, "credits");
  const wanted = choiceOf(query.bucket, words.usage.buckets, "");
  const now = new Date();
  const compared = rangeOf(period, now, query, bornAt());
  const plan = compared && planOf(compared, wanted, now);
  const { accountId } = account.value;
  const filter = {
    accountId,
    keyIds: query.key === "" ? [] : [query.key],
    models: query.model === "" ? [] : [query.model],
    tags: query.tag.includes("=") ? parseTags(query.tag) : {},
  };
  const to = compared && !compared.isOpen ? { to: timestampFromDate(compared.range.to) } : {};
  const from = compared && timestampFromDate(compared.range.from);

  const following = { isLive: compared?.isOpen === true };
  const chart = useAllPages(
    BillingService.method.queryUsage,
    plan && {
      ...filter,
      ...to,
      from: timestampFromDate(plan.askFrom),
      bucket: buckets[plan.bucket],
    },
    rowsOf,
    following,
  );
  const group =
    by === "tag"
      ? { groupByTag: tag }
      : { groupBy: [by === "model" ? UsageGroup.MODEL : UsageGroup.KEY] };
  const table = useAllPages(
    BillingService.method.queryUsage,
    from && { ...filter, ...to, from, bucket: Bucket.NONE, ...group, withErrors: true },
    rowsOf,
    following,
  );
  const nameOf = (row: UsageRow) =>
    by === "tag" ? row.tagValue : by === "model" ? row.model : row.keyId;
  const tableRows = table.data?.items ?? [];
  const largest = [...tableRows]
    .sort((a, b) => compare(sumOf(b, measure), sumOf(a, measure)))
    .map(nameOf)
    // Requests without the tag are among the others.
    .filter((name) => name !== "")
    .slice(0, namedMax);
  const named = useAllPages(
    BillingService.method.queryUsage,
    by !== "category" && plan && from && table.data?.isLast && largest.length > 0
      ? {
          ...filter,
          ...to,
          from,
          bucket: buckets[plan.bucket],
          ...group,
          ...(by === "model" && { models: largest }),
          ...(by === "key" && { keyIds: largest }),
        }
      : undefined,
    rowsOf,
    following,
  );
  const [areTagsWanted, setTagsWanted] = useState(false);
  const tags = useKnownTags(areTagsWanted || wantedBy === "tag");
  const tagNames = [...new Set(tags.map((text) => text.replace(/=.*/s, "")))];
  const [firstTag] = tagNames;
  useEffect(() => {
    // Of what is known, something is shown at once.
    if (wantedBy === "tag" && query.tag === "" && firstTag !== undefined)
      setQuery({ tag: firstTag }, { replace: true });
  }, [wantedBy, query.tag, firstTag]);
  const keys = useKeys([...tableRows.map(({ keyId }) => keyId), query.key]);

  const title = (
    <Head
      title={words.usage.title}
      tools={
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
          {compared && (
            <LinkButton href={csvAddress(filter, compared, plan, by === "tag" ? tag : "")} download>
              {words.usage.csv}
            </LinkButton>
          )}
        </>
      }
    />
  );
  const filters = (
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
        value={wanted}
        onInput={(bucket) => setQuery({ bucket })}
        options={optionsOf(words.usage.buckets)}
      />
      <Copy text={location.href} label={words.usage.copyLink} />
    </Filters>
  );
  if (!compared || !plan)
    return (
      <>
        {title}
        {filters}
        <p role="alert" class="muted">
          {words.usage.rangeWrong}
        </p>
      </>
    );

  const isEmpty = table.data?.isLast === true && tableRows.length === 0;
  // By category, and where nothing was used, no names are asked for.
  const report = together(chart, table, by === "category" || isEmpty ? table : named);
  return (
    <>
      {title}
      {filters}
      <View
        call={report}
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
          const all = shown.items.flatMap((row) => timed(row));
          // Without the range before, all rows count: the first bucket may begin before the range.
          const isCompared = plan.askFrom < compared.range.from;
          const current = isCompared ? all.filter(isWithin(compared.range)) : all;
          const before = isCompared ? all.filter(isWithin(compared.before)) : undefined;
          const chosen = list.items.length > 0 ? largest : [];
          const series =
            by === "category"
              ? categorySeries(measure)
              : namedSeries(chosen, { by, keys, others: list.items.length - chosen.length });
          const bars =
            by === "category"
              ? categoryBars(current, measure, { range: compared.range, span: plan.span })
              : namedBars(
                  {
                    all: current,
                    named: names.items.flatMap((row) => timed(row, nameOf(row))),
                  },
                  chosen,
                  measure,
                  { range: compared.range, span: plan.span },
                );
          const until = list.last.completeUntil ?? shown.last.completeUntil;
          return (
            <>
              <Totals current={current} before={before} period={period} />
              <Chart
                measure={measure}
                series={series}
                plan={plan}
                bars={bars}
                isOpen={compared.isOpen}
                onMeasure={(value) => setQuery({ in: value })}
                isByWeek={wanted === "day" && plan.span === "week"}
              />
              <Rows
                rows={list.items}
                by={by}
                tag={tag}
                keys={keys}
                isWhole={list.isLast}
                note={until && words.usage.completeUntil(clock(until))}
              />
            </>
          );
        }}
      </View>
      {table.data?.first.errors && <Refused errors={table.data.first.errors} />}
    </>
  );
}

/** The first and the last day of a range, as fields hold them. */
function daysOf({ from, to }: Compared["range"]): { from: string; to: string } {
  const day = (date: Date) => date.toISOString().slice(0, 10);
  return { from: day(from), to: day(new Date(to.getTime() - 1)) };
}

function compare(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function sumOf({ sums }: UsageRow, measure: Measure): bigint {
  return sums ? measured(measure, sums) : 0n;
}

type UsageFilter = {
  readonly accountId: string;
  readonly keyIds: readonly string[];
  readonly models: readonly string[];
  readonly tags: Readonly<Record<string, string>>;
};

/** The file has the same range and filters as the page. */
function csvAddress(
  { accountId, keyIds, models, tags }: UsageFilter,
  { range, isOpen }: Compared,
  plan: Plan | undefined,
  tag: string,
): string {
  const search = new URLSearchParams({
    account: accountId,
    from: range.from.toISOString(),
    ...(!isOpen && { to: range.to.toISOString() }),
    bucket: plan?.bucket ?? "day",
    ...(keyIds[0] && { key: keyIds[0] }),
    ...(models[0] && { model: models[0] }),
    ...(Object.keys(tags).length > 0 && { tag: tagsText(tags) }),
    ...(tag !== "" && { group_by_tag: tag }),
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

/** Counts have bounds, so a median is known as well as they are apart. */
function boundText(ms: number): string {
  if (ms === Infinity) return words.usage.beyond(`${(firstEventBoundsMs.at(-1) ?? 0) / 1000} s`);
  return words.usage.about(`${ms / 1000} s`);
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

function Chart({
  measure,
  series,
  bars,
  plan,
  isOpen,
  isByWeek,
  onMeasure,
}: {
  readonly measure: Measure;
  readonly series: readonly Series[];
  readonly bars: readonly Bar[];
  readonly plan: Plan;
  readonly isOpen: boolean;
  readonly isByWeek: boolean;
  readonly onMeasure: (measure: Measure) => void;
}) {
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
          onInput={onMeasure}
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
        openFrom={isOpen ? bars.at(-1)?.from : undefined}
        format={(value) => unit(isCredits ? credits(value) : count(value))}
        formatTick={(value) => (isCredits ? tickOfCredits(value) : compact(value))}
        leastTick={isCredits ? oneCredit / 1000n : 1n}
      />
      {isByWeek && <p class="faint">{words.usage.weeks}</p>}
    </Card>
  );
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
        <a class="row-link" href={href("requests", { model: row.model })}>
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
              cell: (row) => refusalOf(row.reason).label,
              foot: words.bars.total,
            },
            {
              name: "count",
              head: usage.refusedHead.count,
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
          rows={[...rows].sort((a, b) => compare(b.requests, a.requests))}
          keyOf={({ reason }) => reason}
        />
      )}
    </Card>
  );
}
