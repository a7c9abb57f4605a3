// Single requests, newest first, as they end.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Outcome, type Receipt } from "../../../../gen/gateway/billing/v1/receipt_pb.ts";
import {
  type ListChargesRequestSchema,
  UsageService,
} from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { toActor } from "../../../base/actors.ts";
import { sideOf, type TokenCategory, tokenCategories } from "../../../base/token-categories.ts";
import { type Call, call, type StreamState, useCall } from "../api.ts";
import { compact, count, credits, duration, moment, parseCredits } from "../format.ts";
import { following } from "../live.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import {
  addNewest,
  addOlder,
  type ChargeList,
  chargePageSize,
  durationOf,
  firstEventOf,
} from "../parts/charge-list.ts";
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
import { OutcomeTag } from "../parts/outcome.tsx";
import { Card, Head } from "../parts/page.tsx";
import { KeyName, Notice, Time } from "../parts/small.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { parseTags } from "../parts/tags.ts";
import { edgeOf } from "../parts/usage-report.ts";
import { Empty, Skeleton, View } from "../parts/view.tsx";
import { href, type PageProps, useQuery } from "../router.ts";
import { account, can } from "../session.ts";
import { words } from "../words.ts";
import { Views } from "./views.tsx";

const defaults = {
  key: "",
  model: "",
  outcome: "",
  least: "",
  tag: "",
  by: "",
  from: "",
  to: "",
  live: "on",
};

const outcomes: Readonly<Record<keyof typeof words.requests.outcomes, readonly Outcome[]>> = {
  "": [],
  completed: [Outcome.COMPLETED],
  failed: [
    Outcome.PROVIDER_FAILED,
    Outcome.PROVIDER_BROKE,
    Outcome.GATEWAY_FAILED,
    Outcome.REAPED,
    Outcome.INPUT_ABOVE_HOLD,
  ],
  cut: [
    Outcome.CLIENT_LEFT_BEFORE_ACCEPTANCE,
    Outcome.CLIENT_LEFT_BEFORE_CONTENT,
    Outcome.CLIENT_LEFT,
    Outcome.REVOKED,
    Outcome.TIME_LIMIT,
  ],
};

type Query = Readonly<typeof defaults>;

/** What the address says: which requests are listed, and how. */
function chosenIn(query: Query) {
  const outcome = choiceOf(query.outcome, words.requests.outcomes, "");
  const least = query.least === "" ? 0n : parseCredits(query.least);
  const [from, to] = [edgeOf(query.from, "from"), edgeOf(query.to, "to")];
  const { live, ...filters } = query;
  const { accountId } = account.value;
  const request: ListRequest = {
    accountId,
    filter: {
      keyId: query.key,
      model: query.model,
      outcomes: [...outcomes[outcome]],
      minChargedMicrocredits: least ?? 0n,
      tags: parseTags(query.tag),
      madeBy: toActor(query.by),
    },
    pageSize: chargePageSize,
    ...(from && { startAt: timestampFromDate(from) }),
    ...(to && { endAt: timestampFromDate(to) }),
  };
  return {
    ...{ request, outcome, from, to },
    isLeastWrong: least === undefined,
    isLiveWanted: live === "on",
    // A range that ends in the past gets nothing new.
    mayGrow: !to || to > new Date(),
    isFiltered: Object.values(filters).some((value) => value !== ""),
  };
}

type Chosen = ReturnType<typeof chosenIn>;

export function Requests(_: PageProps): JSX.Element {
  const [query, setQuery] = useQuery(defaults);
  const chosen = chosenIn(query);
  const list = useChargeList(chosen.request, chosen.isLiveWanted && chosen.mayGrow);
  const charges = list.data?.charges ?? [];
  const keys = useKeys([...charges.map(({ keyId }) => keyId), query.key]);
  const props = { query, setQuery, chosen, keys };
  const clear = () => setQuery({ ...defaults, live: query.live });
  return (
    <>
      <Head title={words.requests.title} tools={<Tools {...props} />} />
      <RequestFilters {...props} />
      <View
        call={list}
        skeleton={<Skeleton rows={10} />}
        empty={({ charges, token }) =>
          charges.length === 0 && token === "" ? (
            <None isFiltered={chosen.isFiltered} onClear={clear} />
          ) : undefined
        }
      >
        {(shown) => (
          <>
            {shown.isIncomplete && (
              <div class="above">
                <Notice
                  tone="warn"
                  action={<Button onClick={list.restart}>{words.requests.readAgain}</Button>}
                >
                  {words.requests.leftOut}
                </Notice>
              </div>
            )}
            <Card flush>
              {shown.charges.length > 0 && (
                <div class="dense tight">
                  <Table
                    name="requests"
                    caption={words.requests.caption}
                    columns={columnsOf(keys)}
                    rows={shown.charges}
                    keyOf={({ requestId }) => requestId}
                  />
                </div>
              )}
              <Foot list={shown} onMore={list.more} />
            </Card>
          </>
        )}
      </View>
    </>
  );
}

type PartProps = {
  readonly query: Query;
  readonly setQuery: (changes: Partial<Query>) => void;
  readonly chosen: Chosen;
  readonly keys: ReadonlyMap<string, KeyText>;
};

function Tools({ query, setQuery, chosen }: PartProps): JSX.Element {
  const { isLiveWanted, mayGrow, from, to } = chosen;
  const isLive = isLiveWanted && mayGrow;
  return (
    <>
      <LiveSwitch
        state={isLive ? following.value : "closed"}
        isOn={isLive}
        isDisabled={!mayGrow}
        onInput={(on) => setQuery({ live: on ? "on" : "off" })}
      />
      <LinkButton href={csvAddress(query.key, from, to)} icon="download" download>
        {words.requests.csv}
      </LinkButton>
      <Views page="requests" />
    </>
  );
}

function RequestFilters({ query, setQuery, chosen, keys }: PartProps): JSX.Element {
  const [areTagsWanted, setTagsWanted] = useState(false);
  const tags = useKnownTags(areTagsWanted);
  return (
    <Filters>
      <KeyFilter
        keyId={query.key}
        known={keys.get(query.key)}
        onInput={(key) => setQuery({ key })}
      />
      <ModelFilter value={query.model} onInput={(model) => setQuery({ model })} />
      <ChoiceFilter
        label={words.requests.outcome}
        value={chosen.outcome}
        onInput={(value) => setQuery({ outcome: value })}
        options={optionsOf(words.requests.outcomes)}
      />
      <TextFilter
        label={words.requests.least}
        value={query.least}
        problem={chosen.isLeastWrong ? words.requests.leastWrong : undefined}
        onInput={(value) => setQuery({ least: value.trim() })}
      />
      <TextFilter
        label={words.requests.tag}
        value={query.tag}
        mode="text"
        offered={tags}
        onFocus={() => setTagsWanted(true)}
        onInput={(value) => setQuery({ tag: value.trim() })}
      />
      {query.by !== "" && (
        <TextFilter
          label={words.requests.by}
          value={query.by}
          mode="text"
          onInput={(value) => setQuery({ by: value.trim() })}
        />
      )}
      <DayFilter
        label={words.requests.from}
        value={query.from}
        onInput={(value) => setQuery({ from: value })}
      />
      <DayFilter
        label={words.requests.to}
        value={query.to}
        onInput={(value) => setQuery({ to: value })}
      />
    </Filters>
  );
}

type ChargeCall = Call<ChargeList> & {
  more(): Promise<void>;
  /** Begins anew with the newest page. */
  restart(): void;
};

type ListRequest = MessageInitShape<typeof ListChargesRequestSchema>;

/** The charges of a filter: the newest page, those behind it, and what is new if `isLive`. */
function useChargeList(request: ListRequest, isLive: boolean): ChargeCall {
  const first = useCall(UsageService.method.listCharges, request, { isLive });
  learnKeys(first.data?.keys ?? []);
  const question = JSON.stringify(request, (_, value) =>
    typeof value === "bigint" ? String(value) : value,
  );
  const [kept, setKept] = useState<{ question: string; list: ChargeList }>();
  const list = kept?.question === question ? kept.list : undefined;
  const change = (next: (list: ChargeList | undefined) => ChargeList | undefined) =>
    setKept((before) => {
      const after = next(before?.question === question ? before.list : undefined);
      return after && { question, list: after };
    });
  const { data } = first;
  useEffect(() => {
    if (data) change((before) => addNewest(before, data));
  }, [data, question]);
  return {
    ...first,
    // Until the effect has run, the page itself.
    data: list ?? (data && addNewest(undefined, data)),
    async more() {
      if (!list || list.token === "") return;
      const page = await call(UsageService.method.listCharges, {
        ...request,
        pageToken: list.token,
      });
      learnKeys(page.keys);
      change((before) => before && addOlder(before, page));
    },
    restart() {
      setKept(undefined);
      first.refresh();
    },
  };
}

function csvAddress(keyId: string, from: Date | undefined, to: Date | undefined): string {
  const search = new URLSearchParams({
    account: account.value.accountId,
    ...(from && { from: from.toISOString() }),
    ...(to && { to: to.toISOString() }),
    ...(keyId !== "" && { key: keyId }),
  });
  return `/console/export/charges.csv?${search}`;
}

type LiveSwitchProps = {
  readonly state: StreamState;
  readonly isOn: boolean;
  readonly isDisabled: boolean;
  readonly onInput: (on: boolean) => void;
};

function LiveSwitch({ state, isOn, isDisabled, onInput }: LiveSwitchProps): JSX.Element {
  return (
    <button
      type="button"
      class="button live"
      aria-pressed={isOn}
      disabled={isDisabled}
      data-state={state}
      onClick={() => onInput(!isOn)}
    >
      <i aria-hidden="true" />
      {words.requests.live}
    </button>
  );
}

function None({
  isFiltered,
  onClear,
}: {
  readonly isFiltered: boolean;
  readonly onClear: () => void;
}): JSX.Element {
  const { noMatch, empty } = words.requests;
  if (isFiltered)
    return (
      <Empty title={noMatch.title} action={<Button onClick={onClear}>{noMatch.action}</Button>}>
        {noMatch.text}
      </Empty>
    );
  return (
    <Empty
      title={empty.title}
      action={
        can("member") && (
          <LinkButton kind="main" href={href("keys", { new: "1" })}>
            {empty.action}
          </LinkButton>
        )
      }
    >
      {empty.text}
    </Empty>
  );
}

/** How far back the list goes, and the button to go on. */
function Foot({
  list,
  onMore,
}: {
  readonly list: ChargeList;
  readonly onMore: () => Promise<void>;
}): JSX.Element {
  const { token, searchedTo, archivedBefore, charges, isSparse, isIncomplete } = list;
  const end = archivedBefore ? words.requests.archived(moment(archivedBefore)) : words.requests.all;
  if (token === "") return <p class="table-foot faint">{isIncomplete ? "" : end}</p>;
  return (
    <p class="table-foot row">
      {isSparse && searchedTo && (
        <span class="muted">
          {charges.length === 0
            ? words.requests.searchedNone(moment(searchedTo))
            : words.requests.searchedTo(moment(searchedTo))}
        </span>
      )}
      <Button kind="quiet" onClick={onMore}>
        {isSparse ? words.requests.searchOn : words.requests.more}
      </Button>
    </p>
  );
}

function columnsOf(keys: ReadonlyMap<string, KeyText>): Column<Receipt>[] {
  const { head, none, open } = words.requests;
  return [
    {
      name: "time",
      head: head.time,
      cell: ({ requestId, admittedAt }) => (
        <a class="row-link" href={href(`requests/${requestId}`)} title={open(requestId)}>
          {admittedAt ? <Time at={admittedAt} as="row" /> : requestId}
        </a>
      ),
    },
    {
      name: "key",
      head: head.key,
      cell: ({ keyId }) => (
        <KeyName
          name={keys.get(keyId)?.name || hintOf(keys.get(keyId)) || keyId}
          href={href(`keys/${keyId}`)}
        />
      ),
    },
    {
      name: "model",
      head: head.model,
      cell: ({ model, outcome }) => (
        <span class="row">
          <span class="clipped" title={model}>
            {model}
          </span>
          {outcome !== Outcome.COMPLETED && <OutcomeTag outcome={outcome} />}
        </span>
      ),
    },
    tokensColumn("input"),
    tokensColumn("output"),
    tokensColumn("thinking"),
    {
      name: "cache",
      head: head.cache,
      end: true,
      cell: ({ usage }) => (
        <span title={cacheDetails(usage)}>
          <Tokens count={cacheCategories.reduce((sum, one) => sum + (usage?.[one] ?? 0), 0)} />
        </span>
      ),
    },
    ...cacheCategories.map((category) => ({ ...tokensColumn(category), isExtra: true })),
    {
      name: "credits",
      head: head.credits,
      end: true,
      cell: ({ chargedMicrocredits: amountMicrocredits }) => credits(amountMicrocredits, 4),
    },
    {
      name: "outcome",
      head: head.outcome,
      cell: ({ outcome }) => <OutcomeTag outcome={outcome} />,
      isExtra: true,
    },
    {
      name: "first",
      head: head.firstToken,
      end: true,
      cell: (charge) => timeOf(firstEventOf(charge)) ?? none,
      isExtra: true,
    },
    {
      name: "duration",
      head: head.duration,
      end: true,
      cell: (charge) => timeOf(durationOf(charge)) ?? none,
    },
  ];
}

const cacheCategories = tokenCategories.filter((one) => sideOf[one] === "cache");

function tokensColumn(category: TokenCategory): Column<Receipt> {
  return {
    name: category,
    head: words.requests.categories[category],
    end: true,
    cell: ({ usage }) => <Tokens count={usage?.[category] ?? 0} />,
  };
}

/** "Write 5 min 1,200 · Read 40" */
function cacheDetails(usage: Receipt["usage"]): string {
  const { categories } = words.requests;
  return cacheCategories.map((one) => `${categories[one]} ${count(usage?.[one] ?? 0)}`).join(" · ");
}

function timeOf(ms: number | undefined): string | undefined {
  return ms === undefined ? undefined : duration(ms);
}

/** Most categories of a request are 0, which should not be read. */
function Tokens({ count: n }: { readonly count: number }): JSX.Element {
  return <span class={n === 0 ? "faint" : undefined}>{compact(n)}</span>;
}
