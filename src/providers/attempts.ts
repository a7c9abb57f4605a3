// The calls to providers that one request leads to: at most three until a provider sends its first
// event. From then on the request reads that provider's own stream.

import type { Duration } from "@bufbuild/protobuf/wkt";
import type { Attempt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { type AttemptOutcomeName, attemptOutcomeOf } from "../base/attempt-outcomes.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { isLocalShortage } from "../base/shortage.ts";
import { waitFor } from "../base/stopwatch.ts";
import { costVersionOf, type PriceFacts } from "../config/catalog.ts";
import type { Span } from "../tracing/tracing.ts";
import { failed } from "./failures.ts";
import type {
  AnswerReader,
  CallReader,
  ProviderEnd,
  ProviderFailure,
  ProviderRequest,
  ProviderRun,
  RunningCall,
} from "./provider.ts";
import type { ProviderMetrics } from "./provider-metrics.ts";
import { type AcquiredRoute, acquireRoute, healthOf, type ProviderRoute } from "./routing.ts";

/** Shared by all requests of the process. */
export type AnswerParts = {
  readonly clock: Clock;
  readonly log: Log;
  /** From 0 to 1. */
  readonly random: () => number;
  /** Absent: nothing is counted. */
  readonly metrics?: ProviderMetrics | undefined;
  /** Called with the error of each call for which this machine lacked something. */
  readonly reportShortage?: ((error: unknown) => void) | undefined;
};

const callsMax = 3;
/** A provider that asks for a longer wait is not asked again: the client may wait. */
const retryAfterMaxMs = 2_000;

/**
 * Calls a provider, and up to two more times where a call fails before its first event: at other
 * providers first, then after a pause at the same. `findRoutes` is called before each attempt,
 * because the configuration may change between them.
 */
export function callProviders(
  parts: AnswerParts,
  request: ProviderRequest,
  reader: AnswerReader,
  findRoutes: () => readonly ProviderRoute[],
): ProviderRun {
  const calls: Attempted[] = [];
  return {
    ended: runCalls(parts, request, { reader, calls, findRoutes }).catch(toApiError),
    attempts: (facts) =>
      calls.map((call) => call.attempt(facts)).filter((one) => one !== undefined),
  };
}

/** Makes the calls. Resolves with the error of the last one, if it failed. */
async function runCalls(
  parts: AnswerParts,
  request: ProviderRequest,
  run: { reader: AnswerReader; calls: Attempted[]; findRoutes: () => readonly ProviderRoute[] },
): Promise<ApiError | undefined> {
  const { reader, calls, findRoutes } = run;
  const startMs = parts.clock.now();
  const acquire = (routes: readonly ProviderRoute[]) => {
    const acquired = acquireRoute(routes, request.accountId, request.signal);
    return acquired instanceof Promise ? waitFor(acquired, request.waits) : acquired;
  };
  const routes = findRoutes();
  for (const route of routes) healthOf(route).earnRetries();
  let route = await acquire(routes);
  for (;;) {
    const call = new Attempted(parts, request, { reader, route, startMs, before: calls.length });
    calls.push(call);
    const error = await call.run();
    if (error === undefined || call.hasBegun) return error;
    const next = await findNext(parts, request, { reader, calls, routes: findRoutes() });
    if (next === undefined) return error;
    // Where no provider takes the call, the client gets the failure of the last one.
    try {
      route = await acquire(next);
    } catch (reason) {
      throw request.signal.aborted ? reason : error;
    }
    healthOf(route).spendRetry();
  }
}

/** The routes of the next attempt, after its pause. Undefined: there is none. */
async function findNext(
  { clock, random }: AnswerParts,
  request: ProviderRequest,
  {
    reader,
    calls,
    routes,
  }: { reader: AnswerReader; calls: readonly Attempted[]; routes: readonly ProviderRoute[] },
): Promise<readonly ProviderRoute[] | undefined> {
  const last = calls.at(-1);
  const mayBeTried = calls.length < callsMax && !request.repeat && !request.client.aborted;
  if (!last || !mayBeTried || last.failure.retry === "nowhere") return undefined;
  const connections = new Set(calls.map(({ route }) => route.connection));
  const open = routes.filter((route) => healthOf(route).canRetry);
  const untried = open.filter(({ connection }) => !connections.has(connection));
  if (untried.length > 0) return (await reader.mayRepeat()) ? untried : undefined;
  // A provider that refused our credential refuses it again.
  const refusing = calls.filter(({ failure }) => failure.retry === "elsewhere");
  const again = open.filter(
    ({ connection }) => !refusing.some(({ route }) => route.connection === connection),
  );
  if (again.length === 0 || !(await reader.mayRepeat())) return undefined;
  const pauseMs = pauseBefore(last.failure, calls.length - 1, random);
  if (pauseMs === undefined || !(await passes(clock, pauseMs, request))) return undefined;
  return again;
}

/**
 * The pause before a repeat at the same provider, after `repeats` earlier ones. Undefined: it asks
 * for more time than a client should wait here.
 */
export function pauseBefore(
  { isOverload, retryAfterMs }: Pick<ProviderFailure, "isOverload" | "retryAfterMs">,
  repeats: number,
  random: () => number,
): number | undefined {
  if (retryAfterMs !== undefined) return retryAfterMs <= retryAfterMaxMs ? retryAfterMs : undefined;
  return (isOverload ? 500 : 25) * 2 ** repeats * (1 + random());
}

/** True after the pause. False as soon as nobody waits for the answer. */
function passes(
  clock: Clock,
  ms: number,
  { signal, client }: Pick<ProviderRequest, "signal" | "client">,
): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (isOver: boolean) => () => {
      cancelTimer();
      for (const one of [signal, client]) one.removeEventListener("abort", leave);
      resolve(isOver);
    };
    const leave = end(false);
    const cancelTimer = clock.after(ms, end(true));
    for (const one of [signal, client]) one.addEventListener("abort", leave, { once: true });
    if (signal.aborted || client.aborted) leave();
  });
}

/**
 * One call to the provider of a route. It releases the concurrency limit of the route when it ends.
 * Pings before its first event are dropped: a provider that sent only pings may still be replaced
 * by another.
 */
class Attempted implements CallReader {
  readonly route: AcquiredRoute;
  readonly takesRuns: boolean;
  readonly #parts: AnswerParts;
  readonly #request: ProviderRequest;
  readonly #reader: AnswerReader;
  readonly #span: Span | undefined;
  readonly #startMs: number;
  readonly #number: number;
  readonly #cancelTimer: () => void;
  #call: RunningCall | undefined;
  #firstEventMs: number | undefined;
  #end: ProviderEnd | undefined;
  #isReleased = false;
  readonly #cancel = () => this.#call?.stop(new ApiError("cancelled"));

  /** `startMs`: of the request. `before`: the number of its earlier calls. */
  constructor(
    parts: AnswerParts,
    request: ProviderRequest,
    of: { reader: AnswerReader; route: AcquiredRoute; startMs: number; before: number },
  ) {
    const { clock } = parts;
    const { reader, route, startMs, before } = of;
    this.route = route;
    this.takesRuns = reader.takesRuns;
    this.#parts = parts;
    this.#request = request;
    this.#reader = reader;
    this.#startMs = clock.now();
    this.#number = before + 1;
    this.#span = request.trace?.span(`chat ${request.request.model}`, "client");
    const leftMs = route.connection.settings.totalMs - (this.#startMs - startMs);
    this.#cancelTimer = clock.after(Math.max(0, leftMs), () =>
      this.#call?.stop(new ApiError("timeout")),
    );
    request.signal.addEventListener("abort", this.#cancel, { once: true });
    request.waits?.start();
  }

  /** Sends the request. Resolves when the call is over, with its error. Never rejects. */
  async run(): Promise<ApiError | undefined> {
    const { request, signal } = this.#request;
    try {
      const traceHeaders = this.#tracesProvider ? this.#span?.headers : undefined;
      const call = { request, route: this.route.target, traceHeaders };
      this.#call = this.route.connection.provider.generate(call, this);
    } catch (thrown) {
      // Nothing was sent.
      const error = toApiError(thrown);
      this.ended({ outcome: "refused", status: 0, retry: "nowhere", isOurs: true, error });
      this.released();
      return error;
    }
    // The request was cancelled while it waited for the route.
    if (signal.aborted) this.#cancel();
    try {
      return await this.#call.run();
    } catch (cause) {
      // A call that rejects is a fault of ours.
      const failure = failed(0, { cause });
      if (this.#end === undefined) this.ended({ ...failure, retry: "nowhere" });
      this.released();
      return failure.error;
    } finally {
      signal.removeEventListener("abort", this.#cancel);
    }
  }

  /** True once its answer has begun: no other call is made. */
  get hasBegun(): boolean {
    return this.#firstEventMs !== undefined;
  }

  accepted(): void {
    this.#reader.accepted(true);
  }

  refused(): boolean {
    this.#reader.accepted(false);
    return !this.#request.client.aborted;
  }

  write(events: Event[]): Promise<unknown> | undefined {
    return this.hasBegun ? this.#reader.write(events) : this.#begin(events);
  }

  #begin(events: Event[]): Promise<unknown> | undefined {
    const first = events.findIndex((event) => !isPing(event));
    if (first < 0) return undefined;
    this.#firstEventMs = this.#parts.clock.now() - this.#startMs;
    if (this.#end === undefined) this.#succeed();
    const isPlain = this.#call?.isPlain ?? false;
    this.#reader.begin({ provider: this.provider, span: this.#span, isPlain });
    return this.#reader.write(first === 0 ? events : events.slice(first));
  }

  /** Name of the provider in the configuration. */
  get provider(): string {
    return this.route.connection.name;
  }

  /** How the call failed, where no answer has begun. */
  get failure(): ProviderFailure {
    if (this.#end === undefined || this.#end.outcome === "delivered") return failed(0);
    return this.#end;
  }

  /**
   * The call as the receipt shows it, of a request of which these conditions hold. Undefined while
   * it is not known how it goes.
   */
  attempt(facts: PriceFacts = {}): Attempt | undefined {
    const end = this.#end;
    if (end === undefined && this.#firstEventMs === undefined) return undefined;
    const hasBegun = this.#firstEventMs !== undefined;
    return {
      $typeName: "gateway.billing.v1.Attempt",
      provider: this.provider,
      outcome: attemptOutcomeOf(this.#outcomeName(end)),
      status: end?.status || (hasBegun ? 200 : 0),
      firstEventAfter:
        this.#firstEventMs === undefined ? undefined : durationOf(this.#firstEventMs),
      model: this.route.target.model,
      costVersion: costVersionOf(this.route.target.paid, facts),
    };
  }

  /**
   * An answer counts as delivered from its first event on: its receipt is written before the last
   * event is read.
   */
  #outcomeName(end: ProviderEnd | undefined): AttemptOutcomeName {
    const outcome = end?.outcome ?? "delivered";
    return outcome === "failed" && this.#firstEventMs !== undefined ? "broke" : outcome;
  }

  /** Gives the place under the concurrency limit to the next call. */
  released(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.route.connection.concurrency.release();
  }

  ended(end: ProviderEnd): void {
    this.#end = end;
    this.#request.waits?.stop();
    this.#cancelTimer();
    // After a call that we ended ourselves, the provider may still have done the work.
    const isFailed = end.outcome !== "delivered" && end.isOurs !== true;
    if (isFailed && !this.hasBegun) this.#reader.accepted(false);
    this.#report(end);
    if (this.#span) this.#endSpan(this.#span, end);
    this.#parts.metrics?.count({
      provider: this.provider,
      model: this.#request.request.model,
      outcome: this.#outcomeName(end),
      ms: this.#parts.clock.now() - this.#startMs,
    });
  }

  get #tracesProvider(): boolean {
    const { settings } = this.route.connection;
    return settings.kind !== "simulated" && settings.traceHeaders;
  }

  #endSpan(span: Span, end: ProviderEnd): void {
    const { settings } = this.route.connection;
    const { model, maxTokens } = this.#request.request;
    const url = settings.kind === "simulated" ? undefined : URL.parse(settings.baseUrl);
    const isDelivered = end.outcome === "delivered";
    const error = isDelivered ? undefined : end.error.reason;
    span.end(
      {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": this.provider,
        "gen_ai.request.model": model,
        "gen_ai.response.model": this.route.target.model,
        "gen_ai.request.max_tokens": maxTokens,
        "http.response.status_code": end.status === 0 ? undefined : end.status,
        "server.address": url?.hostname,
        "server.port": url ? Number(url.port || (url.protocol === "https:" ? 443 : 80)) : undefined,
        "gateway.attempt": this.#number,
        "error.type": error,
      },
      error,
    );
  }

  #succeed(): void {
    healthOf(this.route).answer(this.#request.accountId, this.route.passed);
  }

  #report(end: ProviderEnd): void {
    const { accountId } = this.#request;
    if (end.outcome !== "delivered" && end.isOurs) {
      if (isLocalShortage(end.error)) this.#parts.reportShortage?.(end.error.cause);
      return;
    }
    if (end.outcome === "delivered" || end.outcome === "refused") {
      if (this.#firstEventMs === undefined) this.#succeed();
      return;
    }
    const { status, reason = end.alarm ?? end.outcome, scope = "account", retryAfterMs } = end;
    const facts = {
      provider: this.provider,
      model: this.route.target.model,
      outcome: this.#outcomeName(this.#end),
      status,
      reason,
    };
    if (end.alarm !== undefined)
      this.#parts.log.error({ code: "provider_alarm", ...facts }, end.alarm);
    else
      this.#parts.log.warn(
        { code: "provider_call_failed", ...facts, err: end.error.facts.cause },
        "provider call failed",
      );
    // Of an answer that had begun, the first event was counted.
    if (this.#firstEventMs !== undefined || scope === "request") return;
    const health = healthOf(this.route);
    const [wasUnusable, wasPaused] = [health.isUnusable, health.pauseMs > 0];
    const failed = {
      accountId: scope === "provider" ? undefined : accountId,
      isQuota: end.isQuota ?? status === 429,
      isDayQuota: end.isDayQuota ?? false,
      retryAfterMs,
    };
    health.fail(failed, { at: new Date(), status, reason });
    if (health.isUnusable && !wasUnusable)
      this.#parts.log.error(
        { code: "provider_unusable", ...facts },
        "the last calls to a provider all failed: it gets few until one is answered",
      );
    if (health.pauseMs > 0 && !wasPaused)
      this.#parts.log.warn(
        { code: "provider_paused", ...facts, pauseMs: health.pauseMs },
        "a provider asked to wait: it gets few calls until then",
      );
  }
}

function isPing({ kind }: Event): boolean {
  return kind.case === "ping";
}

function durationOf(ms: number): Duration {
  return {
    $typeName: "google.protobuf.Duration",
    seconds: BigInt(Math.floor(ms / 1000)),
    nanos: Math.floor((ms % 1000) * 1_000_000),
  };
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * only you can repair it: the provider refuses the credential or the account, lacks the model,
     * refuses a member that the gateway sets, or its certificate is not accepted
     */
    provider_alarm: true;
    /** another provider was tried if the model has one; look at the provider if many fail */
    provider_call_failed: true;
    /** the provider limits us and named a time; until then a tenth of the calls go there */
    provider_paused: true;
    /** the last calls to a provider for a model all failed; look at its status page */
    provider_unusable: true;
  }
}
