// What connects a tool: the addresses, a key, and what to paste, from the one list of tools. Below:
// what became of the last request.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import { Outcome } from "../../../../gen/gateway/billing/v1/receipt_pb.ts";
import { RefusalGroup, UsageService } from "../../../../gen/gateway/usage/v1/usage_pb.ts";
import { useCall } from "../api.ts";
import { clock, count, credits } from "../format.ts";
import { Copy, LinkButton } from "../parts/button.tsx";
import { Segments } from "../parts/choices.tsx";
import { KeyFilter } from "../parts/key-filter.tsx";
import { useKeys } from "../parts/key-names.ts";
import { FileMissing } from "../parts/later.tsx";
import { outcomeText } from "../parts/outcome.tsx";
import { Card, Head } from "../parts/page.tsx";
import { refusalOf } from "../parts/refusals.ts";
import { Notice, Time } from "../parts/small.tsx";
import { ToolBlocks, useTools } from "../parts/tool-blocks.tsx";
import { Skeleton } from "../parts/view.tsx";
import { address, href, useQuery } from "../router.ts";
import { account, can, session } from "../session.ts";
import type { Place, Tool } from "../tools.ts";
import { words } from "../words.ts";
import { connectWords as text } from "../words-connect.ts";

/** Stands in snippets where gRPC is not reached from elsewhere. */
const noGrpc = "GRPC_ADDRESS";

export function Connect(): JSX.Element {
  const [query, setQuery] = useQuery({ tool: "curl", key: "", stream: "" });
  const { file: list, isMissing } = useTools();
  const known = useKeys([query.key]).get(query.key);
  const tool = list?.tools.find(({ id }) => id === query.tool) ?? list?.tools[0];
  const place: Place = {
    origin: location.origin,
    grpc: session.value.grpcAddress || noGrpc,
    key: known?.hint || "YOUR_KEY",
  };
  const isStream = query.stream !== "" && tool?.stream !== undefined;
  return (
    <>
      <Head
        title={words.shell.connect}
        tools={
          can("member") && (
            <LinkButton kind="main" icon="plus" href={href("keys", { new: "1" })}>
              {text.create}
            </LinkButton>
          )
        }
      />
      <p class="intro muted">{text.intro}</p>
      <Card title={text.addresses}>
        <Addresses place={place} />
      </Card>
      <div class="two connect columns">
        <Card title={text.tools}>
          {list && <Tools list={list} chosen={tool?.id} />}
          {!list && (isMissing ? <FileMissing /> : <Skeleton rows={8} />)}
        </Card>
        <Card
          title={tool?.title ?? text.tools}
          tools={
            tool?.stream && (
              <Segments
                label={text.mode}
                value={isStream ? "1" : ""}
                onInput={(stream) => setQuery({ stream })}
                options={[
                  { value: "", label: text.plain },
                  { value: "1", label: text.stream },
                ]}
              />
            )
          }
        >
          <div class="stack">
            <div class="filter-row">
              <KeyFilter keyId={query.key} known={known} onInput={(key) => setQuery({ key })} />
              <p class="hint">{query.key === "" ? text.noKey : text.keyHint}</p>
            </div>
            {tool?.needs && <p class="muted">{text.needs(tool.needs.join(", "))}</p>}
            {list && tool && (
              <ToolBlocks list={list} tool={tool} place={place} isStream={isStream} />
            )}
            {!list && !isMissing && <Skeleton rows={6} />}
            <LastRequest keyId={query.key} />
          </div>
        </Card>
      </div>
    </>
  );
}

function Addresses({ place }: { readonly place: Place }): JSX.Element {
  const rows = [
    [text.native, place.origin, text.nativeHint],
    [text.openai, `${place.origin}/v1`, text.openaiHint],
    [text.grpc, session.value.grpcAddress, text.grpcHint],
  ] as const;
  return (
    <ul class="addresses stack">
      {rows.map(([name, value, hint]) => (
        <li key={name}>
          <h3>{name}</h3>
          {value !== "" && (
            <div class="row">
              <code dir="ltr">{value}</code>
              <Copy text={value} label={text.copy(name)} isSmall />
            </div>
          )}
          <p class="hint">{value === "" ? text.grpcClosed : hint}</p>
        </li>
      ))}
    </ul>
  );
}

type ToolsProps = {
  readonly list: NonNullable<ReturnType<typeof useTools>["file"]>;
  readonly chosen: string | undefined;
};

/** A link for each tool, so that it can be sent. */
function Tools({ list, chosen }: ToolsProps): JSX.Element {
  const search = new URLSearchParams(address.value.search);
  const kept = { key: search.get("key") ?? "", stream: search.get("stream") ?? "" };
  const groups = Map.groupBy(list.tools, ({ group }: Tool) => group);
  return (
    <div class="stack">
      {[...groups].map(([group, tools]) => (
        <section key={group} aria-label={text.groups[group]}>
          <h3>{text.groups[group]}</h3>
          <ul class="tool-grid">
            {tools.map(({ id, title }) => (
              <li key={id}>
                <a
                  href={href("connect", { ...kept, tool: id })}
                  aria-current={id === chosen ? "true" : undefined}
                >
                  {title}
                </a>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </div>
  );
}

const refusalsEveryMs = 5_000;
const hourMs = 3_600_000;

/** What became of the newest request of a key, or of any, and why most refused ones were. */
function LastRequest({ keyId }: { readonly keyId: string }): JSX.Element {
  const { accountId } = account.value;
  const { listCharges, queryRefusals: queryErrors } = UsageService.method;
  const charges = useCall(
    listCharges,
    { accountId, pageSize: 1, ...(keyId !== "" && { filter: { keyId } }) },
    { isLive: true },
  );
  // The start of the hour before this one: the same question for an hour.
  const since = new Date((Math.floor(Date.now() / hourMs) - 1) * hourMs);
  const from = timestampFromDate(since);
  const refused = useCall(
    queryErrors,
    keyId === ""
      ? undefined
      : { accountId, keyIds: [keyId], groupBy: [RefusalGroup.REASON], startAt: from },
    { everyMs: refusalsEveryMs },
  );
  const last = charges.data?.charges[0];
  const [refusal] = (refused.data?.rows ?? []).toSorted((one, other) =>
    one.requests < other.requests ? 1 : -1,
  );
  const { label, advice } = refusalOf(refusal?.reason ?? 0);
  const found = charges.data ? text.waiting : words.common.loading;
  const nothing = charges.error && !charges.data ? text.unread : found;
  return (
    <section class="stack" aria-label={text.last}>
      <h3>
        {text.last} {keyId === "" && <span class="faint">{text.lastOfAll}</span>}
      </h3>
      <div class="waiting" role="status">
        <span class="dot" />
        {last && (
          <span>
            <Time at={last.settledAt} />
            {": "}
            {last.outcome === Outcome.COMPLETED ? "" : `${outcomeText(last)} `}
            {text.completed(last.model, credits(last.chargedMicrocredits, 4))}{" "}
            <a href={href(`requests/${last.requestId}`)}>{text.receipt}</a>
          </span>
        )}
        {!last && <span>{nothing}</span>}
      </div>
      {refusal && (
        <Notice tone="warn">
          {text.refused(count(refusal.requests), clock(since), label, advice)}
        </Notice>
      )}
    </section>
  );
}
