// Who did what: administrative acts, and looks of operators into accounts.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type AuditEvent, AuditService } from "../../../../gen/gateway/audit/v1/audit_pb.ts";
import { OperationsService } from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { actorText, toActor } from "../../../base/actors.ts";
import { reasonName } from "../../../base/reasons.ts";
import { useCall, usePages } from "../api.ts";
import { credits } from "../format.ts";
import { actText, factName } from "../parts/acts.ts";
import { Button } from "../parts/button.tsx";
import { ChoiceFilter, DayFilter, Filters } from "../parts/filters.tsx";
import { Card, Head } from "../parts/page.tsx";
import { PickFilter } from "../parts/pick-filter.tsx";
import { Facts, Tag, Time } from "../parts/small.tsx";
import { type Column, momentOf } from "../parts/table.tsx";
import { dayOf } from "../parts/usage-report.ts";
import { Empty } from "../parts/view.tsx";
import { useQuery } from "../router.ts";
import { words as shared } from "../words.ts";
import { AccountLink, PagedTable, useAccountNames, usePeopleNames } from "./common.tsx";
import { words } from "./words.ts";

const pageSize = 50;
/** How many accounts a search offers. */
const offered = 20;
const dayMs = 86_400_000;

const noFilters = { account: "", actor: "", method: "", from: "", to: "" };

export function AuditEvents(): JSX.Element {
  const [query, setQuery] = useQuery(noFilters);
  const { account, actor, method } = query;
  const from = dayOf(query.from);
  const to = dayOf(query.to);
  const events = usePages(
    AuditService.method.listAuditEvents,
    {
      ...(account === "" ? { allAccounts: true } : { accountId: account }),
      actor: toActor(actor),
      method,
      pageSize,
      ...(from && { startAt: timestampFromDate(from) }),
      // The last day is a part of the range.
      ...(to && { endAt: timestampFromDate(new Date(to.getTime() + dayMs)) }),
    },
    (page) => page.events,
  );
  const columns = useEventColumns(true);
  const nameOf = usePeopleNames();
  const names = useAccountNames();
  const seen = events.data?.items ?? [];
  const isFiltered = Object.values(query).some((value) => value !== "");
  return (
    <>
      <Head title={words.audit.title} />
      <p class="intro muted">{words.audit.intro}</p>
      <Filters>
        <AccountFilter
          accountId={account}
          name={names.get(account)}
          onInput={(next) => setQuery({ account: next })}
        />
        <ChoiceFilter
          label={words.audit.actor}
          value={actor}
          onInput={(next) => setQuery({ actor: next })}
          options={optionsFor(
            seen.map((one) => actorText(one.actor)),
            actor,
            (one) => nameOf(toActor(one)),
          )}
        />
        <ChoiceFilter
          label={words.audit.method}
          value={method}
          onInput={(next) => setQuery({ method: next })}
          options={optionsFor(
            seen.map((one) => one.method),
            method,
            actText,
          )}
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
          name="audit"
          caption={words.audit.caption}
          columns={columns}
          keyOf={({ eventId }) => eventId}
        />
      </Card>
    </>
  );
}

/** What events on screen have, and what is chosen: nobody types an id. */
function optionsFor(
  values: readonly string[],
  chosen: string,
  textOf: (value: string) => string,
): { value: string; label: string }[] {
  const all = [...new Set([...values, chosen])].filter((value) => value !== "");
  const options = all.map((value) => ({ value, label: textOf(value) }));
  return [
    { value: "", label: words.audit.all },
    ...options.sort((a, b) => a.label.localeCompare(b.label)),
  ];
}

type AccountFilterProps = {
  readonly accountId: string;
  readonly name: string | undefined;
  readonly onInput: (accountId: string) => void;
};

/** An account by its name: the service searches. */
function AccountFilter({ accountId, name, onInput }: AccountFilterProps): JSX.Element {
  const [query, setQuery] = useState("");
  const found = useCall(
    OperationsService.method.findAccounts,
    query === "" ? undefined : { query, pageSize: offered },
  );
  return (
    <PickFilter
      label={words.audit.account}
      placeholder={words.audit.all}
      chosen={accountId}
      chosenText={name ?? accountId}
      options={(found.data?.accounts ?? []).map(({ account }) => ({
        id: account?.accountId ?? "",
        text: `${account?.name} (${account?.accountId})`,
      }))}
      onSearch={(text) => setQuery(text ?? "")}
      onInput={onInput}
    />
  );
}

/** `ofAll`: the events are of several accounts. */
export function useEventColumns(ofAll = false): readonly Column<AuditEvent>[] {
  const nameOf = usePeopleNames();
  const names = useAccountNames(ofAll);
  const { head } = words.audit;
  return [
    {
      name: "at",
      head: head.at,
      sortBy: ({ occurredAt: at }) => momentOf(at),
      cell: ({ occurredAt: at }) => <Time at={at} as="moment" />,
    },
    {
      name: "method",
      head: head.method,
      sortBy: ({ method }) => actText(method),
      cell: ({ method }) => actText(method),
    },
    {
      name: "actor",
      head: head.actor,
      sortBy: ({ actor }) => nameOf(actor),
      cell: ({ actor }) => <bdi title={actorText(actor)}>{nameOf(actor)}</bdi>,
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
                <AccountLink accountId={accountId} name={names.get(accountId)} />
              ),
          },
        ]
      : []),
    {
      name: "outcome",
      head: head.outcome,
      sortBy: ({ reason }) => reasonName(reason),
      cell: ({ succeeded, reason }) =>
        succeeded ? (
          words.audit.ok
        ) : (
          <Tag tone="warn">{words.audit.refused(reasonName(reason))}</Tag>
        ),
    },
    { name: "facts", head: head.facts, cell: ({ facts }) => <FactsText facts={facts} /> },
    {
      name: "address",
      head: head.address,
      sortBy: ({ address }) => address,
      cell: ({ address }) => <span class="faint">{address || words.none}</span>,
    },
  ];
}

function FactsText({ facts }: { readonly facts: AuditEvent["facts"] }): JSX.Element {
  const pairs = Object.entries(facts).filter(([name]) => name !== "accountId");
  if (pairs.length === 0) return <span class="faint">{words.none}</span>;
  return (
    <details>
      <summary>{words.audit.facts(pairs.length)}</summary>
      <Facts>
        {pairs.map(([name, value]) => [factName(name), factValue(name, value)] as const)}
      </Facts>
    </details>
  );
}

function factValue(name: string, value: string): string {
  const isAmount = /microcredits$/i.test(name) && /^-?\d+$/.test(value);
  return isAmount ? shared.common.amount(credits(BigInt(value))) : value;
}
