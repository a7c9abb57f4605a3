// Whether requests can be served, asked of the parts that they need.

import { toApiError } from "../base/errors.ts";
import { withTimeout } from "../base/timeout.ts";
import type { Core } from "../contract/contract.ts";
import type { PartState, Readiness } from "../http/http.ts";
import type { Postgres } from "../postgres/postgres.ts";

// Probes come from anybody and as often as they like: within this time they share one answer.
const freshMs = 500;
const answerMsMax = 2_000;

/** Of a process that runs the services. */
export function coreReadiness(parts: {
  postgres: Postgres;
  limits: { ready(): { state: "memory" | "redis" | "degraded" } };
  providers: { usable(): boolean };
}): () => Promise<Readiness> {
  const alive = { name: "readiness/alive", text: "select 1" };
  return shared(async () => ({
    database: await answers(parts.postgres.query(alive, []).then(() => true)),
    limits: stateOfLimits(parts.limits.ready().state),
    providers: parts.providers.usable()
      ? { state: "ok" }
      : { state: "down", message: "no model has a usable provider" },
  }));
}

/** Of a facade whose services are elsewhere. */
export function remoteReadiness(core: Core): () => Promise<Readiness> {
  // A call without a credential is refused by a core that is there.
  const probe = () =>
    core.keys.authenticate({}, { timeoutMs: answerMsMax }).then(
      () => true,
      (error: unknown) => toApiError(error).reason === "missing_key",
    );
  return shared(async () => ({ core: await answers(probe()) }));
}

async function answers(question: Promise<boolean>): Promise<PartState> {
  const isThere = await withTimeout(question, answerMsMax, () => false).catch(() => false);
  return isThere ? { state: "ok" } : { state: "down", message: "does not answer" };
}

function stateOfLimits(state: "memory" | "redis" | "degraded"): PartState {
  return state === "degraded"
    ? { state, message: "redis does not answer; each node allows its share" }
    : { state: "ok", message: state };
}

function shared(ask: () => Promise<Readiness>): () => Promise<Readiness> {
  let latest: { asked: number; answer: Promise<Readiness> } | undefined;
  return () => {
    const now = performance.now();
    if (!latest || now - latest.asked > freshMs) latest = { asked: now, answer: ask() };
    return latest.answer;
  };
}
