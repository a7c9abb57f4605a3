// The models that the account may use: what each takes, what it costs, by the account's own prices
// too, and what a call of so many tokens will cost, as its receipt will have it.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import type { Price } from "../../../../gen/gateway/common/v1/usage_pb.ts";
import { InferenceService, type Model } from "../../../../gen/gateway/inference/v1/inference_pb.ts";
import { KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { Bucket, UsageGroup, UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import {
  callMicro,
  type ModelFacts,
  modelFacts,
  type PlannedCall,
  typicalCall,
} from "../../../base/model-facts.ts";
import type { TokenCategory } from "../../../base/token-categories.ts";
import { useCall } from "../api.ts";
import { count, credits, parseCount, smallDollars } from "../format.ts";
import { Button, Copy } from "../parts/button.tsx";
import { ChoiceFilter, Filters, SearchFilter, TextFilter } from "../parts/filters.tsx";
import { boundText } from "../parts/first-token.ts";
import { Card, Head } from "../parts/page.tsx";
import { Tag } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { startOf } from "../parts/timeline.ts";
import { firstEventWithin } from "../parts/usage-report.ts";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { useQuery } from "../router.ts";
import { account } from "../session.ts";
import { words } from "../words.ts";
import { modelWords as text } from "../words-models.ts";

/** A model with what the page says of it. */
type Row = {
  readonly model: Model;
  readonly price: Price;
  readonly facts: ModelFacts;
  /** As everybody has them. Undefined: the account has no prices of its own for it. */
  readonly publicFacts: ModelFacts | undefined;
};

const defaults = {
  ...{ q: "", in: count(typicalCall.input), out: count(typicalCall.output) },
  ...{ cached: count(typicalCall.cachedPercent), as: "" },
};
type Query = Readonly<Record<keyof typeof defaults, string>>;

const dayMs = 86_400_000;

export function Models(): JSX.Element {
  const [query, setQuery] = useQuery(defaults);
  const { accountId } = account.value;
  const list = useCall(InferenceService.method.listModels, { pricesOf: accountId });
  const keys = useCall(KeysService.method.listKeys, {
    ...{ accountId, pageSize: 1, includeModelKeys: true },
  });
  // By whole hours, as sums are kept: so the question stays the same for one.
  const from = timestampFromDate(startOf("hour", new Date(Date.now() - dayMs)));
  const usage = useCall(
    UsageService.method.queryUsage,
    { ...{ accountId, startAt: from, bucket: Bucket.NONE }, groupBy: [UsageGroup.MODEL] },
    { isLive: true },
  );
  const rows = (list.data?.models ?? []).flatMap(rowOf);
  const found = rows.filter(({ model }) => isFound(model, query.q));
  const conditions = conditionsOf(rows);
  // An address may name a condition that no model has, or no longer has.
  const condition = conditions.has(query.as) ? query.as : "";
  const columns = columnsOf({
    ...{ call: plannedOf(query), condition },
    medianOf: (id) => {
      const sums = usage.data?.rows.find(({ model }) => model === id)?.sums;
      return sums && firstEventWithin(sums, 0.5);
    },
    keysOf: (id) => keys.data && keys.data.anyModelKeys + (keys.data.modelKeys[id] ?? 0),
    allKeys: keys.data?.liveKeys ?? 0,
  });
  return (
    <>
      <Head title={words.shell.models} />
      <p class="intro muted">{text.intro}</p>
      <CallFilters
        query={{ ...query, as: condition }}
        onChange={setQuery}
        conditions={conditions}
      />
      <Card flush>
        <View
          call={list}
          skeleton={<Skeleton rows={8} />}
          partial={() => (keys.error || usage.error ? text.partly : undefined)}
          empty={() => {
            if (rows.length === 0) return <Empty title={text.emptyTitle}>{text.empty}</Empty>;
            return found.length === 0 ? <NoMatch onAll={() => setQuery({ q: "" })} /> : undefined;
          }}
        >
          {() => (
            <div class="dense tight">
              <Table
                name="sold-models"
                caption={text.caption}
                columns={columns}
                rows={found}
                keyOf={({ model }) => model.modelId}
              />
            </div>
          )}
        </View>
      </Card>
    </>
  );
}

/** None of an alias, and of a model without a price. */
function rowOf(model: Model): Row[] {
  const { price, publicPrice, aliasFor } = model;
  if (aliasFor !== "" || !price) return [];
  const conditional = model.conditional.flatMap((one) => one.price ?? []);
  const facts = modelFacts({ ...model, price, conditional });
  const publicFacts = publicPrice && modelFacts({ ...model, price: publicPrice, conditional: [] });
  return [{ model, price, facts, publicFacts }];
}

function isFound({ modelId: id, displayName, aliases }: Model, typed: string): boolean {
  const wanted = typed.trim().toLowerCase();
  return [id, displayName, ...aliases].some((name) => name.toLowerCase().includes(wanted));
}

function NoMatch({ onAll }: { readonly onAll: () => void }): JSX.Element {
  return (
    <Empty title={text.noMatchTitle} action={<Button onClick={onAll}>{text.showAll}</Button>}>
      {text.noMatch}
    </Empty>
  );
}

/** Undefined: what was typed is no call. */
function plannedOf(query: Query): PlannedCall | undefined {
  const [input, output] = [parseCount(query.in), parseCount(query.out)];
  const cachedPercent = percentOf(query.cached);
  if (input === undefined || output === undefined || cachedPercent === undefined) return undefined;
  return { input, output, cachedPercent };
}

function percentOf(typed: string): number | undefined {
  const percent = parseCount(typed);
  return percent !== undefined && percent <= 100 ? percent : undefined;
}

type CallFiltersProps = {
  readonly query: Query;
  readonly onChange: (changes: Partial<Query>) => void;
  /** In words, by their keys. */
  readonly conditions: ReadonlyMap<string, string>;
};

function CallFilters({ query, onChange, conditions }: CallFiltersProps): JSX.Element {
  const problemOf = (number: number | undefined, problem: string) =>
    number === undefined ? problem : undefined;
  return (
    <>
      <Filters>
        <SearchFilter label={text.search} value={query.q} onInput={(q) => onChange({ q })} />
        <TextFilter
          label={text.input}
          value={query.in}
          problem={problemOf(parseCount(query.in), text.notACount)}
          onInput={(typed) => onChange({ in: typed })}
        />
        <TextFilter
          label={text.output}
          value={query.out}
          problem={problemOf(parseCount(query.out), text.notACount)}
          onInput={(typed) => onChange({ out: typed })}
        />
        <TextFilter
          label={text.cached}
          value={query.cached}
          problem={problemOf(percentOf(query.cached), text.notAPercent)}
          onInput={(typed) => onChange({ cached: typed })}
        />
        {conditions.size > 0 && (
          <ChoiceFilter
            label={text.condition}
            value={query.as}
            onInput={(as) => onChange({ as })}
            options={[
              { value: "", label: text.plain },
              ...[...conditions].map(([value, label]) => ({ value, label })),
            ]}
          />
        )}
      </Filters>
      <p class="intro hint">{text.callHint}</p>
    </>
  );
}

type Condition = Model["conditional"][number];

const conditionKey = ({ speed, geo, tier }: Condition) => [speed, geo, tier].join("/");

/** Every condition under which a model has a price, in words, by its key. */
function conditionsOf(rows: readonly Row[]): ReadonlyMap<string, string> {
  const labelOf = ({ speed, geo, tier }: Condition) =>
    [speed && text.speed(speed), geo && text.geo(geo), tier && text.tier(tier)]
      .filter(Boolean)
      .join(", ");
  const all = rows.flatMap(({ model }) => model.conditional);
  return new Map(all.map((one) => [conditionKey(one), labelOf(one)]));
}

type Shown = {
  readonly call: PlannedCall | undefined;
  /** The key of what the call asks for. Empty: nothing. */
  readonly condition: string;
  /** Of the first token, in milliseconds. Undefined: nothing was answered, or is not known. */
  readonly medianOf: (modelId: string) => number | undefined;
  /** How many keys may use a model. Undefined: not known yet. */
  readonly keysOf: (modelId: string) => number | undefined;
  readonly allKeys: number;
};

function columnsOf(shown: Shown): readonly Column<Row>[] {
  const { head } = text;
  const costOf = ({ model, price }: Row) => {
    const { call, condition } = shown;
    const asked = model.conditional.find((one) => conditionKey(one) === condition)?.price;
    const paid = condition === "" ? price : asked;
    return paid && call && callMicro(paid, call);
  };
  return [
    {
      name: "model",
      head: head.model,
      sortBy: ({ facts }) => facts.name,
      cell: (row) => <ModelName row={row} />,
    },
    {
      name: "call",
      head: head.call,
      end: true,
      sortBy: costOf,
      cell: (row) => <Cost micro={costOf(row)} isTyped={shown.call !== undefined} />,
    },
    priceColumn("input", "input"),
    priceColumn("output", "output"),
    priceColumn("read", "cacheRead"),
    { ...priceColumn("write5m", "cacheWrite5m"), isExtra: true },
    { ...priceColumn("write1h", "cacheWrite1h"), isExtra: true },
    { ...priceColumn("thinking", "thinking"), isExtra: true },
    {
      name: "context",
      head: head.context,
      end: true,
      sortBy: ({ model }) => model.contextTokens,
      cell: ({ model }) => (
        <>
          <div>{count(model.contextTokens)}</div>
          <div class="faint">{text.out(count(model.maxOutputTokens))}</div>
        </>
      ),
    },
    {
      name: "answer",
      head: head.answer,
      end: true,
      isExtra: true,
      sortBy: ({ model }) => model.maxOutputTokens,
      cell: ({ model }) => count(model.maxOutputTokens),
    },
    {
      name: "first",
      head: head.first,
      end: true,
      sortBy: ({ model }) => shown.medianOf(model.modelId),
      cell: ({ model }) => {
        const median = shown.medianOf(model.modelId);
        return median === undefined ? words.requests.none : boundText(median);
      },
    },
    {
      name: "keys",
      head: head.keys,
      end: true,
      sortBy: ({ model }) => shown.keysOf(model.modelId),
      cell: ({ model }) => {
        const keys = shown.keysOf(model.modelId);
        return keys === undefined
          ? words.requests.none
          : text.allowed(count(keys), count(shown.allKeys));
      },
    },
    {
      name: "rules",
      head: head.rules,
      sortBy: ({ facts }) => facts.rules.length,
      cell: ({ facts }) => <Rules rules={facts.rules} />,
    },
  ];
}

function ModelName({ row }: { readonly row: Row }): JSX.Element {
  const { facts, model, price, publicFacts } = row;
  return (
    <>
      <span class="key-name" title={[facts.name, price.note].filter(Boolean).join("\n")}>
        <span class="name" dir="auto">
          {facts.name}
        </span>
        {publicFacts && <Tag tone="accent">{text.ownPrices}</Tag>}
      </span>
      <span class="model-names">
        {[model.modelId, ...model.aliases].map((name) => (
          <span key={name}>
            <code title={name}>{name}</code>
            <Copy text={name} label={text.copyName(name)} isSmall />
          </span>
        ))}
      </span>
    </>
  );
}

type CostProps = { readonly micro: bigint | undefined; readonly isTyped: boolean };

function Cost({ micro, isTyped }: CostProps): JSX.Element {
  if (micro === undefined)
    return <span class="faint">{isTyped ? text.notOffered : words.requests.none}</span>;
  return (
    <>
      <div>{credits(micro, 4)}</div>
      <div class="faint">{smallDollars(micro, 4)}</div>
    </>
  );
}

/** Credits, dollars, and the dollars that everybody pays, of a million tokens. */
function priceColumn(name: keyof typeof text.head, category: TokenCategory): Column<Row> {
  const priceIn = (facts: ModelFacts | undefined) =>
    facts?.prices.find((one) => one.category === category);
  return {
    name,
    head: text.head[name],
    end: true,
    sortBy: ({ price }) => price[category],
    cell: ({ facts, publicFacts }) => {
      const [own, of] = [priceIn(facts), priceIn(publicFacts)];
      return (
        <>
          <div>{own?.credits}</div>
          <div class="faint">${own?.usd}</div>
          {of && of.usd !== own?.usd && (
            <div class="faint">
              <span class="visually-hidden">{text.publicly}</span> <s>${of.usd}</s>
            </div>
          )}
        </>
      );
    },
  };
}

/** More, or longer ones, would make the row high. */
const openLength = 60;

function Rules({ rules }: { readonly rules: readonly string[] }): JSX.Element {
  const all = rules.map((one) => (
    <span key={one} class="sentence">
      {one}
    </span>
  ));
  if (rules.length === 0) return <span class="faint">{words.requests.none}</span>;
  if (rules.length === 1 && rules.join().length <= openLength) return <>{all}</>;
  return (
    <details class="rules">
      <summary>{text.rules(count(rules.length))}</summary>
      {all}
    </details>
  );
}
