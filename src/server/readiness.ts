// Readiness checks for GET /health and gRPC health: can the parts that requests need serve them?

import { toApiError } from "../base/errors.ts";
import { withTimeout } from "../base/timeout.ts";
import type { Core } from "../contract/contract.ts";
import type { PartState, Readiness } from "../http/http.ts";
import type { Postgres } from "../postgres/postgres.ts";

// Anybody may probe, as often as they like: all probes within this time share one result.
const reuseMs = 500;
const checkTimeoutMs = 2_000;
/** Requests wait for no lock so long. */
const stalledMsMax = 3_000;

/** Readiness of a process that runs the services. */
export function coreReadiness(parts: {
  postgres: Postgres;
  months: { state(): PartState | undefined };
  billing: { stalledMs(): number };
  limits: { ready(): { state: "memory" | "redis" | "degraded" } };
  providers: { usable(): boolean };
}): () => Promise<Readiness> {
  return reused(async () => ({
    database: await stateOfDatabase(parts.postgres, parts.billing.stalledMs()),
    ...withState("months", parts.months.state()),
    limits: stateOfLimits(parts.limits.ready().state),
    providers: parts.providers.usable()
      ? { state: "ok" }
      : { state: "down", message: "no model has a usable provider" },
  }));
}

/** Readiness of a facade, whose services run in another process. */
export function remoteReadiness(core: Core): () => Promise<Readiness> {
  // Without a credential: a core that is alive answers `missing_key`.
  const check = () =>
    core.keys.authenticate({}, { timeoutMs: checkTimeoutMs }).then(
      () => true,
      (error: unknown) => toApiError(error).reason === "missing_key",
    );
  return reused(async () => ({ core: await stateOf(check()) }));
}

const alive = {
  name: "readiness/alive",
  text: `select pg_is_in_recovery() or current_setting('transaction_read_only') = 'on'
    as is_read_only`,
};

async function stateOfDatabase(postgres: Postgres, stalledMs: number): Promise<PartState> {
  const check = postgres.query<{ is_read_only: boolean }>(alive, []).then((rows) => rows[0]);
  const row = await withTimeout(check, checkTimeoutMs, () => undefined).catch(() => undefined);
  if (row === undefined) return { state: "down", message: "does not answer" };
  if (row.is_read_only) return { state: "down", message: "takes no writes" };
  // It answers, but every request waits or fails: a lock, a full disk, a lost standby.
  if (stalledMs >= stalledMsMax) return { state: "down", message: "admits no requests" };
  return { state: "ok" };
}

/** `ok` if the check resolves with true in time. */
async function stateOf(check: Promise<boolean>): Promise<PartState> {
  const isAlive = await withTimeout(check, checkTimeoutMs, () => false).catch(() => false);
  return isAlive ? { state: "ok" } : { state: "down", message: "does not answer" };
}

function withState(name: string, state: PartState | undefined): Readiness {
  return state === undefined ? {} : { [name]: state };
}

function stateOfLimits(state: "memory" | "redis" | "degraded"): PartState {
  return state === "degraded"
    ? { state, message: "Redis does not answer; each node enforces its share of every limit" }
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
