// The running installation: its nodes, its database, and the requests that run. What a node knows
// of itself alone, such as the health of its providers, reaches the others through the ledger:
// each node describes itself in its row, and writes it again when something has changed.

import { createHash } from "node:crypto";
import { hostname } from "node:os";
import { create, fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type GetStatusResponse,
  GetStatusResponseSchema,
  LimitsStore,
  type Node,
  type NodeReport,
  NodeReportSchema,
  NodeSchema,
  ProviderHealth,
  type ProviderState,
  ProviderStateSchema,
} from "../../gen/gateway/operations/v1/operations_pb.ts";
import { type Clock, systemClock } from "../base/clock.ts";
import type { CatalogFile } from "../config/catalog.ts";
import type { Durability, Postgres } from "../postgres/postgres.ts";
import type { ManagedProviders, ProviderCondition } from "../providers/providers.ts";
import { readSetup, type SetupParts } from "./setup.ts";

export type StatusParts = SetupParts & {
  readonly ledger: {
    nodes(): Promise<readonly NodeRecord[]>;
    running(): Promise<{
      readonly requests: bigint;
      readonly heldMicro: bigint;
      /** Null: none runs. */
      readonly oldestAdmittedAt: Date | null;
      readonly firstDeadlineAt: Date | null;
    }>;
  };
  readonly nodeId: () => string;
  /** Null: never. */
  readonly adminTokenUsedAt: () => Promise<Date | null>;
  readonly postgres: Pick<Postgres, "readDurability">;
  readonly database: {
    readonly isEmbedded: boolean;
    /** Undefined: not read yet. */
    monthsAhead(): number | undefined;
  };
  readonly providers: Pick<ManagedProviders, "conditions" | "usableModels">;
  readonly limits: () => "memory" | "redis" | "degraded";
  readonly process: {
    /** Of the gateway. */
    readonly version: string;
    /** The number of this worker. 0: the process runs alone. */
    readonly worker: number;
  };
  /** The configuration file of this moment. */
  readonly file: () => CatalogFile;
  readonly clock?: Clock | undefined;
};

/** A process on this database. */
type NodeRecord = {
  readonly nodeId: string;
  readonly startedAt: Date;
  /** About one a second. */
  readonly silentPolls: number;
  /** As `describeNode` wrote it. Null: the node has not. */
  readonly report: unknown;
  readonly reportedAt: Date | null;
};

export async function getStatus(parts: StatusParts): Promise<GetStatusResponse> {
  const { ledger, postgres, database, nodeId } = parts;
  const [nodes, running, durability, adminTokenUsedAt] = await Promise.all([
    ledger.nodes(),
    ledger.running(),
    postgres.readDurability(),
    parts.adminTokenUsedAt(),
  ]);
  const answering = nodeId();
  const reports = nodes.flatMap((record) => readReport(record) ?? []);
  return create(GetStatusResponseSchema, {
    nodes: nodes.map((record) => toNode(record, answering)),
    database: describeDatabase(database, durability),
    running: {
      requests: running.requests,
      heldMicrocredits: running.heldMicro,
      ...(running.oldestAdmittedAt && {
        oldestAdmittedAt: timestampFromDate(running.oldestAdmittedAt),
      }),
      ...(running.firstDeadlineAt && {
        firstDeadlineAt: timestampFromDate(running.firstDeadlineAt),
      }),
    },
    readAt: timestampFromDate(new Date()),
    ...(adminTokenUsedAt && { adminTokenLastUsedAt: timestampFromDate(adminTokenUsedAt) }),
    setup: await readSetup(parts, reports),
  });
}

function describeDatabase(
  { isEmbedded, monthsAhead }: StatusParts["database"],
  { isSynchronous, problem, syncStandbys, version }: Durability,
) {
  return {
    version,
    embedded: isEmbedded,
    synchronous: isSynchronous,
    // Nobody replicates the database that the gateway runs by itself.
    problem: isEmbedded ? "" : (problem ?? ""),
    ...(syncStandbys !== undefined && { syncStandbys }),
    monthsAhead: Math.max(0, monthsAhead() ?? 0),
  };
}

function toNode(record: NodeRecord, answering: string): Node {
  const report = readReport(record);
  return create(NodeSchema, {
    nodeId: record.nodeId,
    startedAt: timestampFromDate(record.startedAt),
    silentFor: { seconds: BigInt(record.silentPolls) },
    answering: record.nodeId === answering,
    ...(report && { report }),
  });
}

/** Undefined: the node has not described itself. A newer one may say more than is known here. */
export function readReport({
  report,
  reportedAt,
}: Pick<NodeRecord, "report" | "reportedAt">): NodeReport | undefined {
  if (report === null || reportedAt === null) return undefined;
  const read = fromJson(NodeReportSchema, toJsonValue(report), { ignoreUnknownFields: true });
  read.reportedAt = timestampFromDate(reportedAt);
  return read;
}

function toJsonValue(stored: unknown): JsonValue {
  return JSON.parse(JSON.stringify(stored));
}

/** How this process describes itself, as JSON: the same text while nothing has changed. */
export function describeNode(
  { providers, limits, process: own, file }: StatusParts,
  unnamedProxies: readonly string[],
): string {
  const report = create(NodeReportSchema, {
    host: hostname(),
    pid: process.pid,
    worker: own.worker,
    version: own.version,
    runtimeVersion: process.version,
    configuration: hashOf(file()),
    limits: limitsStores[limits()],
    providers: providers.conditions().map(toProviderState),
    unnamedProxies: [...unnamedProxies],
  });
  return JSON.stringify(toJson(NodeReportSchema, report));
}

/** How long a peer is shown that is noted once an hour while it sends. */
const shownMs = 3_660_000;
/** More of them are clients that make a header up. */
const shownMax = 10;

/** The peers of this process that look like proxies and are not named as such. */
export class UnnamedProxies {
  readonly #clock: Clock;
  readonly #notedAtMs = new Map<string, number>();

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  note(peer: string): void {
    this.#notedAtMs.delete(peer);
    this.#notedAtMs.set(peer, this.#clock.now());
    const [oldest = ""] = this.#notedAtMs.keys();
    if (this.#notedAtMs.size > shownMax) this.#notedAtMs.delete(oldest);
  }

  list(): string[] {
    const sinceMs = this.#clock.now() - shownMs;
    return [...this.#notedAtMs].flatMap(([peer, atMs]) => (atMs > sinceMs ? [peer] : [])).sort();
  }
}

const limitsStores = {
  memory: LimitsStore.MEMORY,
  redis: LimitsStore.REDIS,
  degraded: LimitsStore.DEGRADED,
} as const;

const healths = {
  good: ProviderHealth.GOOD,
  reduced: ProviderHealth.REDUCED,
  unusable: ProviderHealth.UNUSABLE,
} as const;

function toProviderState(condition: ProviderCondition): ProviderState {
  const { name, health, waitingModels, lastFailure, credential } = condition;
  return create(ProviderStateSchema, {
    provider: name,
    health: healths[health],
    waitingModels: [...waitingModels],
    ...(lastFailure && {
      lastFailure: {
        occurredAt: timestampFromDate(lastFailure.at),
        httpStatus: lastFailure.status,
        reason: lastFailure.reason,
      },
    }),
    ...(credential && { credentialSource: credential.source }),
    ...(credential?.endsAt && { credentialExpiresAt: minuteOf(credential.endsAt) }),
  });
}

const minuteMs = 60_000;

/** A report is written again when it changes, and an end that is computed changes a little. */
function minuteOf(time: Date) {
  return timestampFromDate(new Date(Math.round(time.getTime() / minuteMs) * minuteMs));
}

const hashes = new WeakMap<CatalogFile, string>();

/** A hash of models, prices and providers. Equal for files that mean the same to requests. */
export function hashOf(file: CatalogFile): string {
  const known = hashes.get(file);
  if (known !== undefined) return known;
  const { models, aliases, providers, features, tierFallback } = file;
  const text = JSON.stringify(
    { models, aliases, providers, features, tierFallback },
    // Values of headers may be secrets, which nothing may be guessed from.
    (name, value: unknown) =>
      name === "headers"
        ? Object.keys(Object(value))
        : typeof value === "bigint"
          ? String(value)
          : value,
  );
  const hash = createHash("sha256").update(text).digest("hex").slice(0, 12);
  hashes.set(file, hash);
  return hash;
}
