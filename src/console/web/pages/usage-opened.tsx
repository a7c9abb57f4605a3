// A bar of the usage that is open: whose requests it is made of, how they failed, what was refused,
// and the way to the requests themselves. Its sums are those of the bar, of all its parts.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import {
  Bucket,
  type QueryUsageResponse,
  UsageGroup,
  type UsageRow,
  UsageService,
  type UsageSums,
  UsageSumsSchema,
} from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { together } from "../api.ts";
import { count } from "../format.ts";
import { useAllPages } from "../parts/all-pages.ts";
import { Button, LinkButton } from "../parts/button.tsx";
import { type KeyText, keyText } from "../parts/key-names.ts";
import { outcomeLabel } from "../parts/outcome.tsx";
import { Card } from "../parts/page.tsx";
import { refusalOf } from "../parts/refusals.ts";
import { noRefusals, notKept } from "../parts/refusals-kept.ts";
import { Table } from "../parts/table.tsx";
import type { Span } from "../parts/timeline.ts";
import { edgeText, failuresOf, type Named, sharesOf } from "../parts/usage-report.ts";
import { Skeleton, View } from "../parts/view.tsx";
import { href } from "../router.ts";
import { words } from "../words.ts";
import { whyWords } from "../words-why.ts";
import { type Chosen, rowsOf } from "./usage-calls.ts";

const text = whyWords.opened;
/** So many keys, and models, have a row of their own. */
const rowsMax = 5;

/** The start of a bar, and the time of it that is in the range. `to` undefined: it still grows. */
export type Opened = { readonly bar: Date; readonly from: Date; readonly to: Date | undefined };

type OpenedProps = {
  readonly opened: Opened;
  readonly span: Span;
  readonly chosen: Chosen;
  readonly keys: ReadonlyMap<string, KeyText>;
  /** What of the address the list of requests can be asked for. */
  readonly query: { readonly key: string; readonly model: string; readonly tag: string };
  readonly onClose: () => void;
};

export function OpenedBar(props: OpenedProps): JSX.Element {
  const { opened, span, chosen, query, onClose } = props;
  const place = useRef<HTMLElement>(null);
  useEffect(() => place.current?.scrollIntoView({ block: "nearest" }), []);
  const { queryUsage } = UsageService.method;
  const request = {
    ...chosen.filter,
    startAt: timestampFromDate(opened.from),
    ...(opened.to && { endAt: timestampFromDate(opened.to) }),
    bucket: Bucket.NONE,
  };
  // As the chart: a request that was admitted in a past bar may be settled now.
  const following = { isLive: chosen.compared?.isOpen === true };
  const ofKeys = { ...request, groupBy: [UsageGroup.KEY] };
  // The models are on one page, which is read again and again; keys may have many.
  const ofModels = {
    ...{ ...request, groupBy: [UsageGroup.MODEL] },
    ...{ includeRefusals: true, includeOutcomes: true },
  };
  const both = together(
    useAllPages(queryUsage, ofKeys, rowsOf, following),
    useAllPages(queryUsage, ofModels, rowsOf, following),
  );
  const requests = href("requests", {
    ...{ key: query.key, model: query.model },
    ...(query.tag.includes("=") && { tag: query.tag }),
    from: edgeText(opened.from, "from"),
    ...(opened.to && { to: edgeText(opened.to, "to") }),
  });
  return (
    <Card
      title={words.bars.span(span, opened.bar)}
      place={place}
      tools={
        <>
          <LinkButton href={requests}>{text.requests}</LinkButton>
          <Button icon="close" label={text.close} kind="quiet" onClick={onClose} />
        </>
      }
    >
      <View call={both} skeleton={<Skeleton rows={4} />}>
        {([keys, models]) => (
          <Parts
            {...props}
            keyRows={keys.items}
            areAllKeys={keys.isLast}
            modelRows={models.items}
            answer={models.first}
          />
        )}
      </View>
    </Card>
  );
}

type PartsProps = OpenedProps & {
  readonly keyRows: readonly UsageRow[];
  /** False: so far, or there are more than a page of the console reads. */
  readonly areAllKeys: boolean;
  readonly modelRows: readonly UsageRow[];
  readonly answer: QueryUsageResponse;
};

function Parts(props: PartsProps): JSX.Element {
  const { keyRows, areAllKeys, modelRows, answer, chosen, keys, query, opened } = props;
  const { outcomes, refusals: errors, totals = create(UsageSumsSchema) } = answer;
  const isByTag = Object.keys(chosen.filter.tags).length > 0;
  const { failures, hasMore } = failuresOf(outcomes, totals.failed + totals.cut, {
    labelOf: outcomeLabel,
    lacking: isByTag ? text.noOutcome : text.archived,
  });
  const lacks = errors && notKept(errors, opened);
  const isOfOthers = query.model !== "" || query.tag.includes("=");
  const refused = [...(errors?.rows ?? [])].sort((a, b) => Number(b.requests - a.requests));
  return (
    <>
      <p>
        {totals.requests === 0n
          ? text.nothing
          : text.total(chosen.money.named(totals.chargedMicrocredits), count(totals.requests))}
      </p>
      <div class="opened columns">
        <Shares
          title={text.keys}
          rows={keyRows}
          {...{ totals, chosen }}
          note={areAllKeys ? undefined : text.keysSoFar(count(keyRows.length))}
          nameOf={({ keyId }) => {
            const name = keyText(keyId, keys.get(keyId));
            return (
              <a class="row-link clipped" href={href(`keys/${keyId}`)} title={name} dir="auto">
                {name}
              </a>
            );
          }}
          head={words.usage.head.key}
        />
        <Shares
          title={text.models}
          rows={modelRows}
          {...{ totals, chosen }}
          nameOf={({ model }) => (
            <span class="clipped" title={model}>
              {model}
            </span>
          )}
          head={words.usage.head.model}
        />
        <Counts
          title={text.failures}
          head={text.head.outcome}
          rows={failures}
          none={text.noFailures}
          note={hasMore && isByTag ? text.foldedFailures : undefined}
        />
        <Counts
          title={text.refusals}
          head={text.head.reason}
          rows={refused.map(({ reason, requests }) => ({
            name: refusalOf(reason).label,
            requests,
          }))}
          none={noRefusals(text.noRefusals, lacks)}
          note={[refused.length > 0 && lacks, isOfOthers && text.ofKeys].filter(Boolean).join(" ")}
        />
      </div>
    </>
  );
}

function Part({
  title,
  children,
}: {
  readonly title: string;
  readonly children: ComponentChildren;
}) {
  return (
    <section class="stack">
      <h3>{title}</h3>
      {children}
    </section>
  );
}

type SharesProps = {
  readonly title: string;
  readonly head: string;
  readonly rows: readonly UsageRow[];
  /** Of all rows, also of those that are not read. */
  readonly totals: UsageSums;
  readonly chosen: Chosen;
  readonly nameOf: (row: UsageRow) => ComponentChildren;
  readonly note?: string | undefined;
};

/** Those that cost most, and all others as one. */
function Shares(props: SharesProps): JSX.Element | null {
  const { title, head, rows, totals, chosen, nameOf, note } = props;
  const { money } = chosen;
  if (rows.length === 0) return null;
  const { largest, rest } = sharesOf(rows, totals, rowsMax);
  const shares = largest.map((row) => ({
    id: row.keyId || row.model,
    name: nameOf(row),
    requests: row.sums?.requests ?? 0n,
    amount: row.sums?.chargedMicrocredits ?? 0n,
  }));
  const others = rest && { id: "", name: text.rest(count(rest.rows)), ...rest };
  return (
    <Part title={title}>
      <Table
        caption={title}
        columns={[
          { name: "name", head, cell: ({ name }) => name, foot: text.all },
          {
            name: "requests",
            head: text.head.requests,
            end: true,
            cell: ({ requests }) => count(requests),
            foot: count(totals.requests),
          },
          {
            name: "amount",
            head: whyWords.units[money.unit],
            end: true,
            cell: ({ amount }) => money.text(amount),
            foot: money.text(totals.chargedMicrocredits),
          },
        ]}
        rows={others ? [...shares, others] : shares}
        keyOf={({ id }) => id}
      />
      {note && <p class="faint">{note}</p>}
    </Part>
  );
}

type CountsProps = {
  readonly title: string;
  readonly head: string;
  readonly rows: readonly Named[];
  /** What stands there where there are none. */
  readonly none: string;
  readonly note?: string | undefined;
};

function Counts({ title, head, rows, none, note }: CountsProps): JSX.Element {
  const all = rows.reduce((sum, { requests }) => sum + requests, 0n);
  return (
    <Part title={title}>
      {rows.length === 0 ? (
        <p class="muted">{none}</p>
      ) : (
        <Table
          caption={title}
          columns={[
            {
              name: "name",
              head,
              sortBy: ({ name }) => name,
              cell: ({ name }) => name,
              foot: text.all,
            },
            {
              name: "requests",
              head: text.head.requests,
              sortBy: ({ requests }) => requests,
              end: true,
              cell: ({ requests }) => count(requests),
              foot: count(all),
            },
          ]}
          rows={rows}
          keyOf={({ name }) => name}
        />
      )}
      {note && <p class="faint">{note}</p>}
    </Part>
  );
}
