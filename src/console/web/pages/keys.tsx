import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Key, KeyStatus, KeysService } from "../../../../gen/gateway/keys/v1/keys_pb.ts";
import { count, credits, day, moment, relative, toDate } from "../format.ts";
import { useActorNames } from "../parts/actors.ts";
import { useAllPages } from "../parts/all-pages.ts";
import { Button } from "../parts/button.tsx";
import { Search } from "../parts/form.tsx";
import { CreateKeyDialog, nameOfKey, pauseKey, resumeKey } from "../parts/key-dialogs.tsx";
import { Card, Head } from "../parts/page.tsx";
import { KeyName, Meter, nearMax, Tag, Time, type Tone } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href, useQuery } from "../router.ts";
import { account, can, session } from "../session.ts";
import { words } from "../words.ts";

const filters = ["usable", "active", "paused", "expired", "revoked", "all"] as const;
type Filter = (typeof filters)[number];

const statuses: Readonly<Record<Filter, (status: KeyStatus) => boolean>> = {
  usable: (status) => status !== KeyStatus.REVOKED,
  active: (status) => status === KeyStatus.ACTIVE,
  paused: (status) => status === KeyStatus.PAUSED,
  expired: (status) => status === KeyStatus.EXPIRED,
  revoked: (status) => status === KeyStatus.REVOKED,
  all: () => true,
};

/** How many rows are drawn at first, and more at a time: an account may have thousands of keys. */
const rowsStep = 100;

export function Keys(): JSX.Element {
  const { accountId } = account.value;
  const [query, setQuery] = useQuery({ status: "usable", q: "", sort: "made", order: "", new: "" });
  const [limit, setLimit] = useState(rowsStep);
  const nameOfActor = useActorNames();
  const keys = useAllPages(
    KeysService.method.listKeys,
    { accountId, pageSize: 1000 },
    (answer) => answer.keys,
  );
  const filter = filters.find((name) => name === query.status) ?? "usable";
  const isDescending = query.order !== "up";
  const columns = columnsOf(nameOfActor);
  const isLive = ({ status }: Key) => status === KeyStatus.ACTIVE || status === KeyStatus.PAUSED;
  const live = keys.data?.items.filter(isLive).length ?? 0;
  const mayCreate = can("member");
  const createButton = mayCreate && (
    <Button kind="main" icon="plus" onClick={() => setQuery({ new: "1" }, { replace: true })}>
      {words.keys.create}
    </Button>
  );
  return (
    <>
      <Head title={words.keys.title} tools={createButton} />
      <div class="spread filters">
        <div class="row">
          <Search
            label={words.keys.search}
            value={query.q}
            onInput={(q) => {
              setLimit(rowsStep);
              setQuery({ q });
            }}
          />
          <label>
            <span class="visually-hidden">{words.keys.statusLabel}</span>
            <select
              class="small-select"
              value={filter}
              onInput={(event) => setQuery({ status: event.currentTarget.value })}
            >
              {filters.map((name) => (
                <option key={name} value={name}>
                  {words.keys.statuses[name]}
                </option>
              ))}
            </select>
          </label>
        </div>
      </div>
      <Card flush note={nearMax(live, keys.data?.last.liveKeysMax)}>
        <View
          call={keys}
          skeleton={<Skeleton rows={8} />}
          empty={({ items }) =>
            items.length > 0 ? undefined : (
              <Empty title={words.keys.emptyTitle} action={createButton}>
                {mayCreate ? words.keys.empty : words.keys.emptyViewer}
              </Empty>
            )
          }
        >
          {({ items }) => {
            const found = items.filter(
              (key) => statuses[filter](key.status) && isMatch(key, query.q),
            );
            if (found.length === 0)
              return (
                <Empty
                  title={words.keys.noMatchTitle}
                  action={
                    <Button onClick={() => setQuery({ q: "", status: "all" })}>
                      {words.keys.showAll}
                    </Button>
                  }
                >
                  {words.keys.noMatch}
                </Empty>
              );
            const sorted = found.toSorted(orders[query.sort] ?? orders.made);
            const rows = (isDescending ? sorted.toReversed() : sorted).slice(0, limit);
            return (
              <>
                <div class="dense tight">
                  <Table
                    caption={words.keys.caption}
                    columns={columns}
                    rows={rows}
                    keyOf={({ keyId }) => keyId}
                    sort={{
                      by: query.sort,
                      descending: isDescending,
                      onSort: (sort, descending) =>
                        setQuery({ sort, order: descending ? "" : "up" }),
                    }}
                  />
                </div>
                {rows.length < found.length && (
                  <div class="table-foot spread">
                    <span class="faint">
                      {words.keys.shown(count(rows.length), count(found.length))}
                    </span>
                    <Button onClick={() => setLimit(limit + rowsStep)}>{words.common.more}</Button>
                  </div>
                )}
              </>
            );
          }}
        </View>
      </Card>
      {query.new === "1" && mayCreate && (
        <CreateKeyDialog onClose={() => setQuery({ new: "" }, { replace: true })} />
      )}
    </>
  );
}

function isMatch({ name, keyId, secrets }: Key, text: string): boolean {
  const wanted = text.trim().toLowerCase();
  return (
    wanted === "" ||
    name.toLowerCase().includes(wanted) ||
    keyId === wanted ||
    secrets.some(({ hint }) => hint.toLowerCase().includes(wanted))
  );
}

type Order = (a: Key, b: Key) => number;

const timeOf = (at: Key["lastUsedAt"]) => (at ? toDate(at).getTime() : 0);
const compare = <T extends bigint | number>(a: T, b: T) => (a < b ? -1 : a > b ? 1 : 0);

const orders: Readonly<Record<string, Order>> & { readonly made: Order } = {
  made: (a, b) => compare(timeOf(a.createdAt), timeOf(b.createdAt)),
  key: (a, b) => a.name.localeCompare(b.name),
  month: (a, b) => compare(a.monthSpentMicrocredits, b.monthSpentMicrocredits),
  used: (a, b) => compare(timeOf(a.lastUsedAt), timeOf(b.lastUsedAt)),
  rate: (a, b) =>
    compare(a.requestsPerMinute ?? Number.MAX_VALUE, b.requestsPerMinute ?? Number.MAX_VALUE),
};

function columnsOf(nameOfActor: (actor: string) => string): readonly Column<Key>[] {
  return [
    {
      name: "key",
      head: words.keys.key,
      sortable: true,
      cell: ({ name, keyId, secrets }) => (
        <KeyName name={name} hint={secrets[0]?.hint} href={href(`keys/${keyId}`)} />
      ),
    },
    { name: "status", head: words.keys.status, cell: (key) => <KeyTags apiKey={key} /> },
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
      sortable: true,
      cell: ({ requestsPerMinute }) =>
        requestsPerMinute === undefined ? (
          <span class="faint">{words.keys.unlimited}</span>
        ) : (
          count(requestsPerMinute)
        ),
    },
    {
      name: "month",
      head: words.keys.month,
      end: true,
      sortable: true,
      cell: (key) => <MonthOfCap apiKey={key} />,
    },
    {
      name: "used",
      head: words.keys.lastUsed,
      sortable: true,
      cell: ({ lastUsedAt }) => <Time at={lastUsedAt} />,
    },
    {
      name: "made",
      head: words.keys.made,
      sortable: true,
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

/** What was spent this month, of the cap if there is one. */
export function MonthOfCap({ apiKey }: { apiKey: Key }): JSX.Element {
  const { monthSpentMicrocredits: spent, monthlyCapMicrocredits: cap } = apiKey;
  if (cap === undefined) return <>{credits(spent)}</>;
  return (
    <>
      {words.keys.ofCap(credits(spent), credits(cap).replace(/\.00$/, ""))}
      <Meter value={Number(spent)} max={Number(cap)} />
    </>
  );
}

const tones: Readonly<Partial<Record<KeyStatus, Tone>>> = {
  [KeyStatus.ACTIVE]: "good",
  [KeyStatus.PAUSED]: "warn",
};
const names: Readonly<Partial<Record<KeyStatus, "active" | "paused" | "expired" | "revoked">>> = {
  [KeyStatus.ACTIVE]: "active",
  [KeyStatus.PAUSED]: "paused",
  [KeyStatus.EXPIRED]: "expired",
  [KeyStatus.REVOKED]: "revoked",
};
const soonMs = 7 * 86_400_000;

/** The status of a key, and what deserves a look: never used, about to expire. */
export function KeyTags({ apiKey }: { apiKey: Key }): JSX.Element {
  const { status, expiresAt, lastUsedAt } = apiKey;
  const name = names[status] ?? "active";
  const isLive = status === KeyStatus.ACTIVE || status === KeyStatus.PAUSED;
  const leftMs = expiresAt ? toDate(expiresAt).getTime() - Date.now() : Number.POSITIVE_INFINITY;
  return (
    <span class="tags">
      <Tag {...(tones[status] && { tone: tones[status] })}>{words.keys.statuses[name]}</Tag>
      {isLive && !lastUsedAt && <Tag>{words.keys.neverUsed}</Tag>}
      {isLive && expiresAt && leftMs < soonMs && (
        <Tag tone="warn">{words.keys.expires(relative(expiresAt))}</Tag>
      )}
    </span>
  );
}

/** Whether the person may change a key. */
export function mayManage({ managedBy }: Key): boolean {
  const own = `person:${session.value.person?.personId}`;
  return can("owner") || (can("member") && managedBy === own);
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
  if (apiKey.status === KeyStatus.PAUSED)
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
