import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import {
  type Key,
  KeyOrder,
  KeyStatus,
  KeysService,
} from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { usePages } from "../api.ts";
import { count, day, moment } from "../format.ts";
import { useActorNames } from "../parts/actors.ts";
import { Button } from "../parts/button.tsx";
import { choiceOf, optionsOf } from "../parts/filters.tsx";
import { Search } from "../parts/form.tsx";
import { CreateKeyDialog, nameOfKey, pauseKey, resumeKey } from "../parts/key-dialogs.tsx";
import { KeyTags, MonthOfCap, mayManage, mayResume } from "../parts/key-tags.tsx";
import { Card, Head } from "../parts/page.tsx";
import { KeyName, nearMax, Time } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href, useQuery } from "../router.ts";
import { account, can } from "../session.ts";
import { words } from "../words.ts";

const filters = {
  usable: [KeyStatus.ACTIVE, KeyStatus.PAUSED, KeyStatus.EXPIRED],
  active: [KeyStatus.ACTIVE],
  paused: [KeyStatus.PAUSED],
  expired: [KeyStatus.EXPIRED],
  revoked: [KeyStatus.REVOKED],
  all: [],
} as const satisfies Readonly<Record<string, readonly KeyStatus[]>>;

/** By the name of the column. `reversed`: the order of the service is the other way round. */
const orders = {
  made: { order: KeyOrder.UNSPECIFIED, isUp: true },
  key: { order: KeyOrder.NAME, isUp: true },
  month: { order: KeyOrder.MONTH_SPENT, isUp: false },
  used: { order: KeyOrder.LAST_USED, isUp: false },
} as const;

const pageSize = 50;
const defaults = { status: "usable", q: "", sort: "made", order: "", new: "" };

type Query = Readonly<Record<keyof typeof defaults, string>>;

/** The keys of the filters of the address, as the service orders them. */
function useKeyPages(query: Query) {
  const { order, isUp } = orders[choiceOf(query.sort, orders, "made")];
  const request = {
    accountId: account.value.accountId,
    statuses: [...filters[choiceOf(query.status, filters, "usable")]],
    query: query.q.trim(),
    order,
    reversed: (query.order === "up") !== isUp,
    pageSize,
  };
  return usePages(KeysService.method.listKeys, request, (answer) => answer.keys, { isLive: true });
}

export function Keys(): JSX.Element {
  const [query, setQuery] = useQuery(defaults);
  const keys = useKeyPages(query);
  const mayCreate = can("member");
  const createButton = mayCreate && (
    <Button kind="main" icon="plus" onClick={() => setQuery({ new: "1" }, { replace: true })}>
      {words.keys.create}
    </Button>
  );
  const isFiltered = query.q.trim() !== "" || query.status !== defaults.status;
  const { first } = keys.data ?? {};
  return (
    <>
      <Head title={words.keys.title} tools={createButton} />
      <KeyFilters query={query} onChange={setQuery} />
      <Card flush note={nearMax(first?.liveKeys, first?.liveKeysMax)}>
        <View
          call={keys}
          skeleton={<Skeleton rows={8} />}
          empty={({ items }) =>
            items.length > 0 ? undefined : isFiltered ? (
              <NoMatch onAll={() => setQuery({ q: "", status: "all" })} />
            ) : (
              <Empty title={words.keys.emptyTitle} action={createButton}>
                {mayCreate ? words.keys.empty : words.keys.emptyViewer}
              </Empty>
            )
          }
        >
          {({ items, isLast }) => (
            <>
              <KeyTable keys={items} query={query} onChange={setQuery} />
              {!isLast && (
                <div class="table-foot">
                  <Button onClick={keys.more}>{words.common.more}</Button>
                </div>
              )}
            </>
          )}
        </View>
      </Card>
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

function KeyFilters({ query, onChange }: ChangeProps): JSX.Element {
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
      </div>
    </div>
  );
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

function KeyTable({ keys, query, onChange }: ChangeProps & { readonly keys: readonly Key[] }) {
  const nameOfActor = useActorNames(keys.map(({ createdBy }) => createdBy));
  return (
    <div class="dense tight">
      <Table
        name="keys"
        caption={words.keys.caption}
        columns={columnsOf(nameOfActor)}
        rows={keys}
        keyOf={({ keyId }) => keyId}
        sort={{
          by: choiceOf(query.sort, orders, "made"),
          descending: query.order !== "up",
          onSort: (sort, descending) => onChange({ sort, order: descending ? "" : "up" }),
        }}
      />
    </div>
  );
}

function columnsOf(nameOfActor: (actor: string) => string): readonly Column<Key>[] {
  return [
    {
      name: "key",
      head: words.keys.key,
      sortBy: "service",
      cell: (key) => (
        <span class="key-cell">
          <KeyName name={key.name} hint={key.secrets[0]?.hint} href={href(`keys/${key.keyId}`)} />
          <KeyTags apiKey={key} />
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
  if (apiKey.status === KeyStatus.ACTIVE)
    return (
      <Button
        kind="quiet"
        label={words.keys.pauseOf(nameOfKey(apiKey))}
        onClick={() => pauseKey(apiKey)}
      >
        {words.keys.pause}
      </Button>
    );
  if (apiKey.status === KeyStatus.PAUSED && mayResume(apiKey))
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
