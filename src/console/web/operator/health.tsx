// The running installation: its nodes, providers, database, and the oldest request.

import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { JSX } from "preact";
import {
  type CallFailure,
  type Database,
  type GetStatusResponse,
  LimitsStore,
  type Node,
  OperationsService,
  ProviderHealth,
  type ProviderOnNode,
} from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { heartbeatsLate, heartbeatsMissedMax } from "../../../base/shown-figures.ts";
import { useCall } from "../api.ts";
import { clock, count, credits, relative } from "../format.ts";
import { AlertsCard } from "../parts/alerts.tsx";
import { LinkButton } from "../parts/button.tsx";
import { textOf } from "../parts/enum-names.ts";
import { Card, Figure, Figures, Head } from "../parts/page.tsx";
import { Tag, Time } from "../parts/small.tsx";
import { type Column, momentOf, Table } from "../parts/table.tsx";
import { Skeleton, View } from "../parts/view.tsx";
import { hrefOf } from "../router.ts";
import { isOperatorAdmin, operatorPart } from "../session.ts";
import { LookOnly, Nothing } from "./common.tsx";
import { words } from "./words.ts";

export function Health(): JSX.Element {
  const status = useCall(OperationsService.method.getStatus, {}, { isLive: true });
  return (
    <>
      <Head
        title={words.health.title}
        tools={
          <LinkButton kind="quiet" href={hrefOf(operatorPart, "attention")}>
            {words.health.ledger}
          </LinkButton>
        }
      />
      <p class="intro muted">{words.health.intro}</p>
      <LookOnly />
      <View call={status} skeleton={<Skeleton figures={4} rows={4} />}>
        {(data) => (
          <>
            <Summary status={data} />
            <Card title={words.health.nodes} about={words.health.facades} flush>
              <Nodes nodes={data.nodes} />
            </Card>
            <ProvidersCard nodes={data.nodes} />
          </>
        )}
      </View>
      {isOperatorAdmin() && <AlertsCard ofOperators />}
    </>
  );
}

function Summary({ status }: { readonly status: GetStatusResponse }): JSX.Element {
  const { nodes, running, database } = status;
  const alive = nodes.filter((node) => silenceOf(node) < heartbeatsMissedMax).length;
  const machines = new Set(nodes.map(({ report }) => report?.host ?? "")).size;
  const oldest = running?.oldestAdmittedAt;
  const deadline = running?.firstDeadlineAt;
  return (
    <Figures>
      <Figure
        label={words.health.nodes}
        value={words.health.nodesOf(count(alive), count(nodes.length))}
        note={words.health.nodesNote(machines)}
        {...(alive < nodes.length && { tone: "warn" as const })}
      />
      <Figure
        label={words.health.running}
        value={count(running?.requests ?? 0n)}
        note={words.health.runningNote(credits(running?.heldMicrocredits ?? 0n))}
      />
      <Figure
        label={words.health.oldest}
        value={oldest ? relative(oldest) : words.health.oldestNone}
        {...(deadline && { note: words.health.oldestNote(clock(deadline)) })}
      />
      {database && <DatabaseFigure database={database} />}
    </Figures>
  );
}

function DatabaseFigure({ database }: { readonly database: Database }): JSX.Element {
  const {
    version,
    embedded: isEmbedded,
    synchronous: isSynchronous,
    problem,
    syncStandbys,
    monthsAhead,
  } = database;
  const { health } = words;
  const about = `${health.version(version)}; ${health.months(monthsAhead)}`;
  if (problem !== "")
    return (
      <Figure
        label={health.database}
        value={health.notSynchronous}
        note={`${health.problemNote(problem)}. ${about}`}
        tone="bad"
      />
    );
  if (isSynchronous)
    return (
      <Figure
        label={health.database}
        value={health.synchronous}
        note={syncStandbys === undefined ? about : `${health.standbys(syncStandbys)}; ${about}`}
      />
    );
  return (
    <Figure
      label={health.database}
      value={isEmbedded ? health.embedded : health.alone}
      note={`${isEmbedded ? health.embeddedNote : health.lonelyNote}; ${about}`}
    />
  );
}

function Nodes({ nodes }: { readonly nodes: readonly Node[] }): JSX.Element {
  const expected = nodes.find(({ answering: isAnswering }) => isAnswering)?.report?.configuration;
  const { head } = words.health;
  const columns: readonly Column<Node>[] = [
    {
      name: "node",
      head: head.node,
      sortBy: ({ report, nodeId }) => report?.host ?? nodeId,
      cell: (node) => <NodeName node={node} />,
    },
    {
      name: "state",
      head: head.state,
      sortBy: silenceOf,
      cell: (node) => (
        <span class="row">
          <NodeState node={node} />
          {node.report?.unnamedProxies.map((peer) => (
            <Tag key={peer} tone="warn">
              {words.health.unnamedProxy(peer)}
            </Tag>
          ))}
        </span>
      ),
    },
    {
      name: "started",
      head: head.started,
      sortBy: ({ startedAt }) => momentOf(startedAt),
      cell: ({ startedAt }) => <Time at={startedAt} />,
    },
    {
      name: "version",
      head: head.version,
      sortBy: ({ report }) => report?.version,
      cell: ({ report }) =>
        report ? (
          <>
            {report.version}{" "}
            <span class="faint">{words.health.runtime(report.runtimeVersion)}</span>
          </>
        ) : (
          <span class="faint">{words.none}</span>
        ),
    },
    {
      name: "limits",
      head: head.limits,
      cell: ({ report }) =>
        report ? <LimitsTag store={report.limits} /> : <span class="faint">{words.none}</span>,
    },
    {
      name: "configuration",
      head: head.configuration,
      cell: ({ report }) =>
        report ? (
          <span class="row">
            <code>{report.configuration}</code>
            {report.configuration !== expected && (
              <Tag tone="warn">{words.health.otherConfiguration}</Tag>
            )}
          </span>
        ) : (
          <span class="faint">{words.none}</span>
        ),
    },
  ];
  return (
    <div class="dense tight">
      <Table
        name="nodes"
        caption={words.health.caption}
        columns={columns}
        rows={nodes}
        keyOf={({ nodeId }) => nodeId}
      />
    </div>
  );
}

function NodeName({ node }: { readonly node: Node }): JSX.Element {
  const { report, nodeId, answering: isAnswering } = node;
  return (
    <span class="row" title={nodeId}>
      {report ? (
        <bdi class="clipped" title={`${words.health.name(report.host, report.pid)}, ${nodeId}`}>
          {words.health.name(report.host, report.pid)}
        </bdi>
      ) : (
        <code class="clipped">{nodeId}</code>
      )}
      {report && report.worker > 0 && (
        <span class="faint">{words.health.worker(report.worker)}</span>
      )}
      {isAnswering && <Tag>{words.health.answering}</Tag>}
    </span>
  );
}

/** Seconds without a heartbeat. */
function silenceOf({ silentFor }: Node): number {
  return Number(silentFor?.seconds ?? 0n);
}

function NodeState({ node }: { readonly node: Node }): JSX.Element {
  const silent = silenceOf(node);
  if (silent >= heartbeatsMissedMax) return <Tag tone="bad">{words.health.dead}</Tag>;
  if (silent >= heartbeatsLate) return <Tag tone="warn">{words.health.silent(silent)}</Tag>;
  return <Tag tone="good">{words.health.alive}</Tag>;
}

function LimitsTag({ store }: { readonly store: LimitsStore }): JSX.Element {
  const text = textOf(LimitsStore, words.health.limits, store);
  return store === LimitsStore.DEGRADED ? <Tag tone="warn">{text}</Tag> : <span>{text}</span>;
}

function ProvidersCard({ nodes }: { readonly nodes: readonly Node[] }): JSX.Element {
  const byProvider = new Map<string, ProviderOnNode[]>();
  for (const { nodeId, report } of nodes)
    for (const state of report?.providers ?? []) {
      const known = byProvider.get(state.provider) ?? [];
      byProvider.set(state.provider, [...known, onNode(nodeId, state)]);
    }
  const { providersHead: head } = words.health;
  return (
    <Card title={words.health.providers} about={words.health.providersAbout} flush>
      {byProvider.size === 0 ? (
        <Nothing>{words.health.noNodes}</Nothing>
      ) : (
        <Table
          caption={words.health.providersCaption}
          columns={[
            {
              name: "provider",
              head: head.provider,
              sortBy: ([name]) => name,
              cell: ([name]) => name,
            },
            {
              name: "health",
              head: head.health,
              cell: ([, on]) => <HealthOfProvider nodes={on} />,
            },
            { name: "failure", head: head.failure, cell: ([, on]) => <LastFailure nodes={on} /> },
          ]}
          rows={[...byProvider]}
          keyOf={([name]) => name}
        />
      )}
    </Card>
  );
}

function onNode(nodeId: string, state: NonNullable<ProviderOnNode["state"]>): ProviderOnNode {
  return { $typeName: "gateway.operations.v1.ProviderOnNode", nodeId, state };
}

/** The last call of all nodes that a provider did not answer: when, its status, and why. */
export function LastFailure({ nodes }: { readonly nodes: readonly ProviderOnNode[] }): JSX.Element {
  const failures = nodes.flatMap(({ state }) => state?.lastFailure ?? []);
  const atMs = ({ occurredAt: at }: CallFailure) => (at ? timestampMs(at) : 0);
  const [last] = failures.sort((one, other) => atMs(other) - atMs(one));
  if (!last) return <span class="faint">{words.health.noFailure}</span>;
  const { httpStatus: status } = last;
  return (
    <span class="failure">
      <Time at={last.occurredAt} as="moment" />{" "}
      <Tag tone="warn">{status === 0 ? words.health.noStatus : words.health.status(status)}</Tag>{" "}
      <bdi>{last.reason}</bdi>
    </span>
  );
}

/** What one provider gets on all nodes. */
export function HealthOfProvider({
  nodes,
}: {
  readonly nodes: readonly ProviderOnNode[];
}): JSX.Element {
  if (nodes.length === 0) return <span class="faint">{words.health.noNodes}</span>;
  const reduced = nodes.filter(({ state }) => state?.health !== ProviderHealth.GOOD);
  const waiting = [...new Set(nodes.flatMap(({ state }) => state?.waitingModels ?? []))];
  const isUnusable = reduced.some(({ state }) => state?.health === ProviderHealth.UNUSABLE);
  return (
    <span class="tags">
      {reduced.length === 0 ? (
        <Tag tone="good">{words.health.allGood(nodes.length)}</Tag>
      ) : (
        <Tag tone={isUnusable ? "bad" : "warn"}>
          {nodes.length === 1
            ? textOf(ProviderHealth, words.health.providerHealth, reduced[0]?.state?.health ?? 0)
            : words.health.someReduced(reduced.length, nodes.length)}
        </Tag>
      )}
      {waiting.length > 0 && <Tag tone="warn">{words.health.waitsFor(waiting.join(", "))}</Tag>}
    </span>
  );
}
