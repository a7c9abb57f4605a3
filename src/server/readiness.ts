// Readiness checks for GET /health and gRPC health: can the parts that requests need serve them?

import { withTimeout } from "../base/clock.ts";
import type { PartState, Readiness } from "../http/http.ts";
import type { Postgres } from "../postgres/postgres.ts";
import { one } from "../postgres/statement.ts";
import type { LimitState } from "../rate-limits/rate-limits.ts";

// Anybody may probe, as often as they like: all probes within this time share one result.
const reuseMs = 500;
const checkTimeoutMs = 2_000;

/** Readiness of a process that runs the services. */
export function coreReadiness(parts: {
  postgres: Postgres;
  months: { state(): PartState | undefined };
  billing: { problem(): string | undefined };
  limits: { state(): LimitState };
  providers: {
    isUsable(): boolean;
    usableModels(): readonly (readonly [model: string, isUsable: boolean])[];
  };
}): () => Promise<Readiness> {
  return reused(async () => ({
    database: await stateOfDatabase(parts.postgres, parts.billing.problem()),
    ...withState("months", parts.months.state()),
    limits: stateOfLimits(parts.limits.state()),
    providers: stateOfProviders(parts.providers),
  }));
}

/** Readiness of a facade, whose services run in other processes: whether one of them is ready. */
export function remoteReadiness(core: {
  isServing(timeoutMs: number): Promise<boolean>;
}): () => Promise<Readiness> {
  return reused(async () => ({ core: await stateOfCore(core.isServing(checkTimeoutMs)) }));
}

const alive = one<undefined, { isReadOnly: boolean }>(
  "readiness/alive",
  `select pg_is_in_recovery() or current_setting('transaction_read_only') = 'on'
    as is_read_only`,
  () => [],
  ([isReadOnly]) => ({ isReadOnly: isReadOnly === true }),
  "",
);

async function stateOfDatabase(
  postgres: Postgres,
  problem: string | undefined,
): Promise<PartState> {
  const check = postgres.run(alive);
  const row = await withTimeout(check, checkTimeoutMs, () => undefined).catch(() => undefined);
  if (row === undefined) return { state: "down", message: "does not answer" };
  if (row.isReadOnly) return { state: "down", message: "takes no writes" };
  return problem === undefined ? { state: "ok" } : { state: "down", message: problem };
}

async function stateOfCore(check: Promise<boolean>): Promise<PartState> {
  const isServing = await withTimeout(check, checkTimeoutMs, () => undefined).catch(
    () => undefined,
  );
  if (isServing) return { state: "ok" };
  const message = isServing === undefined ? "does not answer" : "takes no requests";
  return { state: "down", message };
}

function stateOfProviders(providers: Parameters<typeof coreReadiness>[0]["providers"]): PartState {
  if (!providers.isUsable()) return { state: "down", message: "no model has a usable provider" };
  if (providers.usableModels().some(([, isUsable]) => isUsable)) return { state: "ok" };
  // Not `down`: only a call that is answered ends it, and a balancer would send none.
  return { state: "degraded", message: "the last calls to every provider failed" };
}

function withState(name: string, state: PartState | undefined): Readiness {
  return state === undefined ? {} : { [name]: state };
}

function stateOfLimits(state: LimitState): PartState {
  return state === "degraded"
    ? { state, message: "without Redis, each node enforces its share of every limit" }
    : { state: "ok", message: state };
}

function reused(check: () => Promise<Readiness>): () => Promise<Readiness> {
  let latest: { atMs: number; result: Promise<Readiness> } | undefined;
  return () => {
    const nowMs = performance.now();
    if (!latest || nowMs - latest.atMs > reuseMs) latest = { atMs: nowMs, result: check() };
    return latest.result;
  };
}
