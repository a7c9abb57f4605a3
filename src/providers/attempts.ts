// The calls to providers that one request leads to: at most three until a provider sends its first
// event. From then on the request reads that provider's own stream.

import assert from "node:assert/strict";
import type { Duration } from "@bufbuild/protobuf/wkt";
import type { Attempt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { isLocalShortage } from "../base/shortage.ts";
import { waitFor } from "../base/stopwatch.ts";
import type { Span } from "../tracing/tracing.ts";
import { failed } from "./failures.ts";
import type {
  ProviderAnswer,
  ProviderEnd,
  ProviderFailure,
  ProviderRequest,
  ProviderStream,
  Read,
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
 * providers first, then after a pause at the same. Never rejects: an answer that no provider began
 * fails at its first read. `findRoutes` is called before each attempt, because the configuration
 * may change between them.
 */
export async function startAnswer(
  parts: AnswerParts,
  request: ProviderRequest,
  findRoutes: () => readonly ProviderRoute[],
): Promise<ProviderAnswer> {
  const calls: RunningAttempt[] = [];
  const requestStartMs = parts.clock.now();
  const acquire = (routes: readonly ProviderRoute[]) => {
    const acquired = acquireRoute(routes, request.accountId, request.signal);
    return acquired instanceof Promise ? waitFor(acquired, request.waits) : acquired;
  };
  const begin = (route: AcquiredRoute): Promise<RunningAttempt> => {
    const called = new RunningAttempt(parts, request, route, { requestStartMs, calls });
    calls.push(called);
    return called.begin();
  };
  try {
    const routes = findRoutes();
    for (const route of routes) healthOf(route).earnRetries();
    let called = await begin(await acquire(routes));
    while (!called.hasAnswer) {
      const { error } = called.failure;
      const next = await findNext(parts, request, { calls, routes: findRoutes() });
      if (next === undefined) throw error;
      // Where no provider takes the call, the client gets the failure of the last one.
      const route = await Promise.resolve(next)
        .then(acquire)
        .catch((reason: unknown) => {
          throw request.signal.aborted ? reason : error;
        });
      healthOf(route).spendRetry();
      called = await begin(route);
    }
    return called;
  } catch (error) {
    return { isPlain: false, events: failing(error), attempts: () => attemptsOf(calls) };
  }
}

/** The routes of the next attempt, after its pause. Undefined: there is none. */
async function findNext(
  { clock, random }: AnswerParts,
  request: ProviderRequest,
  { calls, routes }: { calls: readonly RunningAttempt[]; routes: readonly ProviderRoute[] },
): Promise<readonly ProviderRoute[] | undefined> {
  const last = calls.at(-1);
  const mayBeTried = calls.length < callsMax && !request.repeat && !request.client.aborted;
  if (!last || !mayBeTried || last.failure.retry === "nowhere") return undefined;
  const connections = new Set(calls.map(({ route }) => route.connection));
  const open = routes.filter((route) => healthOf(route).canRetry);
  const untried = open.filter(({ connection }) => !connections.has(connection));
  const isReady = async () => !request.mayRepeat || (await request.mayRepeat());
  if (untried.length > 0) return (await isReady()) ? untried : undefined;
  // A provider that refused our credential refuses it again.
  const refusing = calls.filter(({ failure }) => failure.retry === "elsewhere");
  const again = open.filter(
    ({ connection }) => !refusing.some(({ route }) => route.connection === connection),
  );
  if (again.length === 0 || !(await isReady())) return undefined;
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

function attemptsOf(calls: readonly RunningAttempt[]): Attempt[] {
  return calls.map((call) => call.attempt()).filter((one) => one !== undefined);
}

/**
 * One call to the provider of a route, and its answer once that has begun. It releases the route's
 * concurrency limit when it ends.
 */
class RunningAttempt implements ProviderAnswer {
  readonly route: AcquiredRoute;
  readonly span: Span | undefined;
  readonly #parts: AnswerParts;
  readonly #request: ProviderRequest;
  /** All calls of the request, this one and later ones too. */
  readonly #calls: readonly RunningAttempt[];
  readonly #startMs: number;
  readonly #number: number;
  readonly #cancelTimer: () => void;
  /** True once its answer may be read. */
  hasAnswer = false;
  #stream: ProviderStream | undefined;
  /** The first events of the answer, until they are read. */
  #unread: Read | undefined;
  #firstEventMs: number | undefined;
  #end: ProviderEnd | undefined;
  #isReleased = false;
  readonly #cancel = () => this.#stream?.stop(new ApiError("cancelled"));

  /** `calls`: those of the request before this one, which the caller then adds to the list. */
  constructor(
    parts: AnswerParts,
    request: ProviderRequest,
    route: AcquiredRoute,
    { requestStartMs, calls }: { requestStartMs: number; calls: readonly RunningAttempt[] },
  ) {
    const { clock } = parts;
    const { connection } = route;
    this.route = route;
    this.#parts = parts;
    this.#request = request;
    this.#calls = calls;
    this.#startMs = clock.now();
    this.#number = calls.length + 1;
    this.span = request.trace?.span(`chat ${request.request.model}`, "client");
    const leftMs = connection.settings.totalMs - (this.#startMs - requestStartMs);
    this.#cancelTimer = clock.after(Math.max(0, leftMs), () =>
      this.#stream?.stop(new ApiError("timeout")),
    );
    request.signal.addEventListener("abort", this.#cancel, { once: true });
    request.waits?.start();
  }

  get isPlain(): boolean {
    return this.#stream?.isPlain ?? false;
  }

  // Itself: an object less for each answer.
  get events(): AsyncIterable<Event[]> {
    return this;
  }

  attempts(): Attempt[] {
    return attemptsOf(this.#calls);
  }

  // Without `return`: the request's signal ends the call, not a reader that stops.
  [Symbol.asyncIterator](): { next(): Promise<Read> } {
    return this;
  }

  next(): Promise<Read> {
    const unread = this.#unread;
    this.#unread = undefined;
    if (unread) return Promise.resolve(unread);
    assert(this.#stream, "a call that has an answer has its stream");
    return this.#stream.next();
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

  /** The call as the receipt shows it. Undefined while it is not known how it goes. */
  attempt(): Attempt | undefined {
    const end = this.#end;
    if (end === undefined && this.#firstEventMs === undefined) return undefined;
    // An answer counts as delivered from its first event on: its receipt is written before the last
    // event is read.
    const outcome = end?.outcome ?? "delivered";
    const hasBegun = this.#firstEventMs !== undefined;
    return {
      $typeName: "gateway.billing.v1.Attempt",
      provider: this.provider,
      outcome: outcome === "failed" && hasBegun ? "broke" : outcome,
      status: end?.status || (hasBegun ? 200 : 0),
      firstEventAfter:
        this.#firstEventMs === undefined ? undefined : durationOf(this.#firstEventMs),
    };
  }

  /**
   * Sends the request. Resolves with this call at the first event of its answer, or when it has
   * failed. Pings before that event are dropped: a provider that sent only pings may still be
   * replaced by another.
   */
  async begin(): Promise<RunningAttempt> {
    try {
      this.#stream = this.route.connection.provider.generate({
        request: this.#request.request,
        route: this.route.target,
        onAccepted: () => this.#request.onAccepted(true),
        onEnd: (end) => this.#finish(end),
        onReleased: () => this.#release(),
        relay: this.#request.relay,
        traceHeaders: this.#tracesProvider ? this.span?.headers : undefined,
      });
    } catch (error) {
      // Nothing was sent.
      const refused = { outcome: "refused", status: 0, retry: "nowhere", isOurs: true } as const;
      this.#finish({ ...refused, error: toApiError(error) });
      this.#release();
      return this;
    }
    // The request was cancelled while it waited for the route.
    if (this.#request.signal.aborted) this.#cancel();
    try {
      let read = await this.#stream.next();
      while (!read.done && read.value.every(isPing)) read = await this.#stream.next();
      this.#unread = read.done ? read : this.#noteFirst(read.value);
      this.hasAnswer = true;
    } catch (error) {
      // A stream that rejects without having called `onEnd` is a bug of ours.
      if (this.#end === undefined) this.#release();
      this.#finish({ ...failed(0, { cause: error }), retry: "nowhere" });
    }
    return this;
  }

  /** Returns the first events of the answer without the pings before them. */
  #noteFirst(events: Event[]): Read {
    this.#firstEventMs = this.#parts.clock.now() - this.#startMs;
    if (this.#end === undefined) this.#succeed();
    return { done: false, value: events.slice(events.findIndex((event) => !isPing(event))) };
  }

  /** Gives the place under the concurrency limit to the next call. */
  #release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.route.connection.concurrency.release();
  }

  #finish(end: ProviderEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#request.waits?.stop();
    this.#cancelTimer();
    this.#request.signal.removeEventListener("abort", this.#cancel);
    // After a call that we ended ourselves, the provider may still have done the work.
    const isFailed = end.outcome !== "delivered" && end.isOurs !== true;
    if (isFailed && this.#firstEventMs === undefined) this.#request.onAccepted(false);
    this.#report(end);
    if (this.span) this.#endSpan(this.span, end);
    this.#parts.metrics?.count({
      provider: this.provider,
      model: this.#request.request.model,
      outcome: this.attempt()?.outcome ?? end.outcome,
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
      outcome: this.attempt()?.outcome,
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
      isQuota: status === 429,
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

/** The events of an answer that no provider began. */
function failing(error: unknown): AsyncIterable<Event[]> {
  return { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(error) }) };
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
