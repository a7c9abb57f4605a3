import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import {
  type Key,
  KeyAttention,
  type KeyAttentionCounts,
  KeyOrder,
  KeyState,
  KeysService,
} from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { usePages } from "../api.ts";
import { count, day, moment } from "../format.ts";
import { BulkBar } from "../keys/bar.tsx";
import { KeyGroups } from "../keys/groups.tsx";
import { type KeyFilter, mayPick, type Picks, usePicks } from "../keys/picks.ts";
import { Sparkline } from "../keys/sparkline.tsx";
import { manyWords } from "../keys/words-keys.ts";
import { useActorNames } from "../parts/actors.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import { ChoiceFilter, choiceOf, optionsOf, TextFilter } from "../parts/filters.tsx";
import { Search } from "../parts/form.tsx";
import { CreateKeyDialog, nameOfKey, pauseKey, resumeKey } from "../parts/key-dialogs.tsx";
import { KeyTags, MonthOfCap, mayManage, mayResume } from "../parts/key-tags.tsx";
import { useOfferedTags } from "../parts/offered-tags.ts";
import { Card, Head } from "../parts/page.tsx";
import { KeyName, nearMax, Time } from "../parts/small.tsx";
import { type Column, type Picking, Table } from "../parts/table.tsx";
import { parseTags, tagsText } from "../parts/tags.ts";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href, useQuery } from "../router.ts";
import { account, can } from "../session.ts";
import { words } from "../words.ts";

const filters = {
  usable: [KeyState.ACTIVE, KeyState.PAUSED, KeyState.EXPIRED],
  active: [KeyState.ACTIVE],
  paused: [KeyState.PAUSED],
  expired: [KeyState.EXPIRED],
  revoked: [KeyState.REVOKED],
  all: [],
} as const satisfies Readonly<Record<string, readonly KeyState[]>>;

/** By the name of the column. `reversed`: the order of the service is the other way round. */
const orders = {
  made: { order: KeyOrder.CREATED, isUp: true },
  key: { order: KeyOrder.NAME, isUp: true },
  month: { order: KeyOrder.MONTH_SPENT, isUp: false },
  used: { order: KeyOrder.LAST_USED, isUp: false },
} as const;

const looks = {
  unused: KeyAttention.UNUSED,
  expires_soon: KeyAttention.EXPIRES_SOON,
  near_budget: KeyAttention.NEAR_BUDGET,
} as const;

const pageSize = 50;
const defaults = {
  ...{ status: "usable", q: "", sort: "made", order: "", new: "" },
  ...{ tag: "", without: "", look: "", group: "" },
};

type Query = Readonly<Record<keyof typeof defaults, string>>;

/** The keys that the address asks for. */
function filterOf(query: Query): KeyFilter {
  const look = Object.hasOwn(looks, query.look) ? choiceOf(query.look, looks, "unused") : undefined;
  return {
    accountId: account.value.accountId,
    states: [...filters[choiceOf(query.status, filters, "usable")]],
    query: query.q.trim(),
    tags: parseTags(query.tag),
    withoutTag: query.without,
    attention: look === undefined ? KeyAttention.UNSPECIFIED : looks[look],
  };
}

/** The keys of the filters of the address, as the service orders them. */
function useKeyPages(query: Query, filter: KeyFilter) {
  const { order, isUp } = orders[choiceOf(query.sort, orders, "made")];
  const request = {
    ...filter,
    order,
    reversed: (query.order === "up") !== isUp,
    pageSize,
    includeDays: true,
    includeAttention: true,
    includeTagKeys: true,
  };
  return usePages(
    KeysService.method.listKeys,
    query.group === "" ? request : undefined,
    (answer) => answer.keys,
    { isLive: true },
  );
}

function useGroupPages(query: Query, filter: KeyFilter) {
  const request = { ...filter, groupByTag: query.group, pageSize, includeTagKeys: true };
  return usePages(
    KeysService.method.listKeys,
    query.group === "" ? undefined : { ...request, includeAttention: true },
    (answer) => answer.groups,
    { isLive: true },
  );
}

export function Keys(): JSX.Element {
  const [query, setQuery] = useQuery(defaults);
  const filter = filterOf(query);
  const keys = useKeyPages(query, filter);
  const groups = useGroupPages(query, filter);
  const picks = usePicks(JSON.stringify({ ...filter, ...query }), keys.data?.items ?? []);
  const mayCreate = can("member");
  const createButton = mayCreate && (
    <Button kind="main" icon="plus" onClick={() => setQuery({ new: "1" }, { replace: true })}>
      {words.keys.create}
    </Button>
  );
  const tools = (
    <>
      <LinkButton kind="quiet" href={fileOf(filter)} download>
        {manyWords.csv}
      </LinkButton>
      {createButton}
    </>
  );
  const { q, status, tag, without, look } = query;
  const isFiltered =
    [q.trim(), tag, without, look].some((one) => one !== "") || status !== defaults.status;
  const { first } = (query.group === "" ? keys.data : groups.data) ?? {};
  return (
    <>
      <Head title={words.keys.title} tools={tools} />
      <KeyFilters query={query} onChange={setQuery} tagKeys={first?.tagKeys ?? []} />
      <Looks
        counts={first?.attention}
        chosen={look}
        onChange={(next) => setQuery({ look: next })}
      />
      {query.group === "" ? (
        <Card flush note={nearMax(first?.liveKeys, first?.maxLiveKeys)}>
          {/* What it says of the last act stays when the list has none of these keys any more. */}
          {keys.data && (
            <BulkBar
              picks={picks}
              shown={keys.data.items}
              isAll={keys.data.isLast}
              filter={filter}
            />
          )}
          <View
            call={keys}
            skeleton={<Skeleton rows={8} />}
            empty={({ items }) =>
              items.length > 0 ? undefined : isFiltered ? (
                <NoMatch
                  onAll={() => setQuery({ q: "", status: "all", tag: "", without: "", look: "" })}
                />
              ) : (
                <Empty title={words.keys.emptyTitle} action={createButton}>
                  {mayCreate ? words.keys.empty : words.keys.emptyViewer}
                </Empty>
              )
            }
          >
            {({ items, isLast }) => (
              <>
                <KeyTable keys={items} query={query} onChange={setQuery} picks={picks} />
                {!isLast && (
                  <div class="table-foot">
                    <Button onClick={keys.more}>{words.common.more}</Button>
                  </div>
                )}
              </>
            )}
          </View>
        </Card>
      ) : (
        <Card flush>
          <KeyGroups tag={query.group} groups={groups} query={query} />
        </Card>
      )}
      {query.new === "1" && mayCreate && (
        <CreateKeyDialog onClose={() => setQuery({ new: "" }, { replace: true })} />
      )}
    </>
  );
}

type ChangeProps = {
  readonly query: Query;
  readonly onChange: (changes: Partial<Query>) => void;
};

/** So long nobody has typed: then the search begins. */
const typedMs = 300;

function KeyFilters(props: ChangeProps & { readonly tagKeys: readonly string[] }): JSX.Element {
  const { query, onChange, tagKeys } = props;
  const [typed, setTyped] = useState<string>();
  const offered = useOfferedTags(typed);
  const [text, setText] = useState(query.q);
  useEffect(() => setText(query.q), [query.q]);
  useEffect(() => {
    if (text === query.q) return;
    const timer = setTimeout(() => onChange({ q: text }), typedMs);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <div class="spread filters">
      <div class="row">
        <Search label={words.keys.search} value={text} onInput={setText} />
        <label>
          <span class="visually-hidden">{words.keys.statusLabel}</span>
          <select
            class="small-select"
            value={choiceOf(query.status, filters, "usable")}
            onInput={(event) => onChange({ status: event.currentTarget.value })}
          >
            {optionsOf(words.keys.statuses).map(({ value, label }) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        {(tagKeys.length > 0 || query.tag !== "") && (
          <TextFilter
            label={manyWords.tag}
            mode="text"
            placeholder={manyWords.tagHint}
            value={query.tag}
            offered={offered}
            onTyping={setTyped}
            onInput={(tag) => onChange({ tag })}
          />
        )}
        {(tagKeys.length > 0 || query.group !== "") && (
          <ChoiceFilter
            label={manyWords.groupBy}
            value={query.group}
            onInput={(group) => onChange({ group })}
            options={[
              { value: "", label: manyWords.noGroup },
              ...[...new Set([...tagKeys, query.group])]
                .filter((tag) => tag !== "")
                .map((tag) => ({ value: tag, label: tag })),
            ]}
          />
        )}
        {query.without !== "" && (
          <Button
            kind="quiet"
            icon="close"
            label={manyWords.clearTag}
            onClick={() => onChange({ without: "" })}
          >
            {manyWords.without(query.without)}
          </Button>
        )}
      </div>
    </div>
  );
}

type LooksProps = {
  readonly counts: KeyAttentionCounts | undefined;
  readonly chosen: string;
  readonly onChange: (look: string) => void;
};

/** How many keys deserve each look. Each filters the list, and the chosen one no more. */
function Looks({ counts, chosen, onChange }: LooksProps): JSX.Element | null {
  const found = {
    unused: counts?.unused ?? 0,
    expires_soon: counts?.expiresSoon ?? 0,
    near_budget: counts?.nearBudget ?? 0,
  };
  const shown = optionsOf(manyWords.look).filter(
    ({ value }) => found[value] > 0 || value === chosen,
  );
  if (shown.length === 0) return null;
  return (
    <fieldset class="looks row">
      <legend class="visually-hidden">{manyWords.looks}</legend>
      {shown.map(({ value, label }) => (
        <button
          key={value}
          type="button"
          class="button look"
          title={manyWords.lookTitle[value]}
          aria-pressed={value === chosen}
          onClick={() => onChange(value === chosen ? "" : value)}
        >
          {label} <b>{count(found[value])}</b>
        </button>
      ))}
    </fieldset>
  );
}

/** The address of the file of these keys. */
function fileOf(filter: KeyFilter): string {
  const names: Readonly<Record<number, string>> = {
    [KeyState.ACTIVE]: "active",
    [KeyState.PAUSED]: "paused",
    [KeyState.EXPIRED]: "expired",
    [KeyState.REVOKED]: "revoked",
  };
  const look = Object.entries(looks).find(([, one]) => one === filter.attention)?.[0];
  const asked = {
    account: filter.accountId,
    status: filter.states.map((status) => names[status]).join(","),
    query: filter.query,
    tag: tagsText(filter.tags),
    without_tag: filter.withoutTag,
    attention: look ?? "",
  };
  const given = Object.entries(asked).filter(([, value]) => value !== "");
  return `/console/export/keys.csv?${new URLSearchParams(given)}`;
}

function NoMatch({ onAll }: { readonly onAll: () => void }): JSX.Element {
  return (
    <Empty
      title={words.keys.noMatchTitle}
      action={<Button onClick={onAll}>{words.keys.showAll}</Button>}
    >
      {words.keys.noMatch}
    </Empty>
  );
}

type KeyTableProps = ChangeProps & { readonly keys: readonly Key[]; readonly picks: Picks };

function KeyTable({ keys, query, onChange, picks }: KeyTableProps): JSX.Element {
  const picking: Picking<Key> = {
    allLabel: manyWords.pickAll,
    labelOf: (key) => (mayPick(key) ? manyWords.pick(nameOfKey(key)) : undefined),
    isPicked: picks.has,
    onPick: (rows, isOn) => (isOn ? picks.add(rows) : picks.remove(rows)),
  };
  const nameOfActor = useActorNames(keys.map(({ createdBy }) => createdBy));
  return (
    <div class="dense tight">
      <Table
        name="keys"
        caption={words.keys.caption}
        columns={columnsOf(nameOfActor)}
        rows={keys}
        keyOf={({ keyId }) => keyId}
        picking={can("member") ? picking : undefined}
        sort={{
          by: choiceOf(query.sort, orders, "made"),
          descending: query.order !== "up",
          onSort: (sort, descending) => onChange({ sort, order: descending ? "" : "up" }),
        }}
      />
    </div>
  );
}

function columnsOf(nameOfActor: ReturnType<typeof useActorNames>): readonly Column<Key>[] {
  return [
    {
      name: "key",
      head: words.keys.key,
      sortBy: "service",
      cell: (key) => (
        <span class="key-cell">
          <KeyName name={key.name} hint={key.secrets[0]?.hint} href={href(`keys/${key.keyId}`)} />
          <KeyTags apiKey={key} />
          {Object.keys(key.tags).length > 0 && (
            <small class="clipped faint" dir="auto" title={tagsText(key.tags)}>
              {tagsText(key.tags)}
            </small>
          )}
        </span>
      ),
    },
    // Beside the name: it is in sight on a phone.
    {
      name: "month",
      head: words.keys.month,
      end: true,
      sortBy: "service",
      cell: (key) => <MonthOfCap apiKey={key} />,
    },
    {
      name: "days",
      head: manyWords.days,
      cell: ({ daysMicrocredits }) => <Sparkline days={daysMicrocredits} />,
    },
    {
      name: "models",
      head: words.keys.models,
      cell: ({ allowedModels }) =>
        allowedModels.length === 0 ? (
          <span class="faint">{words.keys.allModels}</span>
        ) : (
          <span title={allowedModels.join("\n")}>{count(allowedModels.length)}</span>
        ),
    },
    {
      name: "rate",
      head: words.keys.perMinute,
      end: true,
      isExtra: true,
      cell: ({ requestsPerMinute }) =>
        requestsPerMinute === undefined ? (
          <span class="faint">{words.keys.unlimited}</span>
        ) : (
          count(requestsPerMinute)
        ),
    },
    {
      name: "used",
      head: words.keys.lastUsed,
      sortBy: "service",
      cell: ({ lastUsedAt }) => <Time at={lastUsedAt} />,
    },
    {
      name: "made",
      head: words.keys.made,
      sortBy: "service",
      cell: ({ createdBy, createdAt }) => {
        const name = nameOfActor(createdBy);
        return (
          <span title={createdAt && words.keys.madeBy(moment(createdAt), name)}>
            {createdAt && day(createdAt)}
          </span>
        );
      },
    },
    {
      name: "actions",
      head: <span class="visually-hidden">{words.keys.actions}</span>,
      end: true,
      cell: (key) => <RowAction apiKey={key} />,
    },
  ];
}

function RowAction({ apiKey }: { apiKey: Key }): JSX.Element | null {
  if (!mayManage(apiKey)) return null;
  if (apiKey.state === KeyState.ACTIVE)
    return (
      <Button
        kind="quiet"
        label={words.keys.pauseOf(nameOfKey(apiKey))}
        onClick={() => pauseKey(apiKey)}
      >
        {words.keys.pause}
      </Button>
    );
  if (apiKey.state === KeyState.PAUSED && mayResume(apiKey))
    return (
      <Button
        kind="quiet"
        label={words.keys.resumeOf(nameOfKey(apiKey))}
        onClick={() => resumeKey(apiKey)}
      >
        {words.keys.resume}
      </Button>
    );
  return null;
}
