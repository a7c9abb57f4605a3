// Who did what: administrative acts, and looks of operators into accounts.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type AuditEvent, PeopleService } from "../../../../gen/gateway/people/v1/people_pb.ts";
import { usePages } from "../api.ts";
import { Button } from "../parts/button.tsx";
import { DayFilter, Filters } from "../parts/filters.tsx";
import { Card, Head } from "../parts/page.tsx";
import { Tag, Time } from "../parts/small.tsx";
import type { Column } from "../parts/table.tsx";
import { Empty } from "../parts/view.tsx";
import { useQuery } from "../router.ts";
import { AccountLink, PagedTable, usePeopleNames } from "./common.tsx";
import { words } from "./words.ts";

const pageSize = 50;
const dayMs = 86_400_000;

const noFilters = { account: "", actor: "", method: "", from: "", to: "" };

export function AuditEvents(): JSX.Element {
  const [query, setQuery] = useQuery(noFilters);
  const { account, actor, method } = query;
  const from = dayOf(query.from);
  const to = dayOf(query.to);
  const events = usePages(
    PeopleService.method.listAuditEvents,
    {
      ...(account === "" ? { allAccounts: true } : { accountId: account }),
      actor,
      method,
      pageSize,
      ...(from && { from: timestampFromDate(from) }),
      // The last day is a part of the range.
      ...(to && { to: timestampFromDate(new Date(to.getTime() + dayMs)) }),
    },
    (page) => page.events,
  );
  const columns = useEventColumns(true);
  const isFiltered = Object.values(query).some((value) => value !== "");
  return (
    <>
      <Head title={words.audit.title} />
      <p class="intro muted">{words.audit.intro}</p>
      <Filters>
        <WordFilter
          label={words.audit.account}
          value={account}
          onInput={(next) => setQuery({ account: next })}
        />
        <WordFilter
          label={words.audit.actor}
          value={actor}
          placeholder={words.audit.actorHint}
          onInput={(next) => setQuery({ actor: next })}
        />
        <WordFilter
          label={words.audit.method}
          value={method}
          onInput={(next) => setQuery({ method: next })}
        />
        <DayFilter
          label={words.audit.from}
          value={query.from}
          onInput={(next) => setQuery({ from: next })}
        />
        <DayFilter
          label={words.audit.to}
          value={query.to}
          onInput={(next) => setQuery({ to: next })}
        />
      </Filters>
      <Card flush>
        <PagedTable
          pages={events}
          greyRows={8}
          empty={
            isFiltered ? (
              <Empty
                title={words.audit.noMatchTitle}
                action={<Button onClick={() => setQuery(noFilters)}>{words.audit.clear}</Button>}
              >
                {words.audit.noMatch}
              </Empty>
            ) : (
              <Empty title={words.audit.emptyTitle}>{words.audit.empty}</Empty>
            )
          }
          caption={words.audit.caption}
          columns={columns}
          keyOf={({ eventId }) => eventId}
        />
      </Card>
    </>
  );
}

/** Undefined: no day, or none that there is. */
function dayOf(text: string): Date | undefined {
  const date = new Date(`${text}T00:00:00Z`);
  return Number.isNaN(date.getTime()) ? undefined : date;
}

type WordFilterProps = {
  readonly label: string;
  readonly value: string;
  readonly placeholder?: string;
  readonly onInput: (value: string) => void;
};

/** A whole word, which counts after Enter, or when the field is left. */
function WordFilter({ label, value, placeholder, onInput }: WordFilterProps): JSX.Element {
  const [text, setText] = useState(value);
  const [shown, setShown] = useState(value);
  // The address has changed otherwise.
  if (shown !== value) {
    setShown(value);
    setText(value);
  }
  return (
    <label class="filter stack">
      <span>{label}</span>
      <input
        type="text"
        value={text}
        placeholder={placeholder}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => setText(event.currentTarget.value)}
        onChange={(event) => onInput(event.currentTarget.value.trim())}
      />
    </label>
  );
}

/** `ofAll`: the events are of several accounts. */
export function useEventColumns(ofAll = false): readonly Column<AuditEvent>[] {
  const nameOf = usePeopleNames();
  const { head } = words.audit;
  return [
    { name: "at", head: head.at, cell: ({ at }) => <Time at={at} as="moment" /> },
    { name: "method", head: head.method, cell: ({ method }) => method },
    {
      name: "actor",
      head: head.actor,
      cell: ({ actor }) => <bdi title={actor}>{nameOf(actor)}</bdi>,
    },
    ...(ofAll
      ? [
          {
            name: "account",
            head: head.account,
            cell: ({ accountId }: AuditEvent) =>
              accountId === "" ? (
                <span class="faint">{words.none}</span>
              ) : (
                <AccountLink accountId={accountId} />
              ),
          },
        ]
      : []),
    {
      name: "outcome",
      head: head.outcome,
      cell: ({ outcome }) =>
        outcome === "ok" ? words.audit.ok : <Tag tone="warn">{words.audit.refused(outcome)}</Tag>,
    },
    { name: "facts", head: head.facts, cell: ({ facts }) => <FactsText facts={facts} /> },
    {
      name: "address",
      head: head.address,
      cell: ({ address }) => <span class="faint">{address || words.none}</span>,
    },
  ];
}

function FactsText({ facts }: { readonly facts: AuditEvent["facts"] }): JSX.Element {
  const text = Object.entries(facts)
    .filter(([name]) => name !== "accountId")
    .map(([name, value]) => `${name} ${value}`)
    .join(", ");
  return (
    <span class="clipped muted" title={text}>
      {text || words.none}
    </span>
  );
}
