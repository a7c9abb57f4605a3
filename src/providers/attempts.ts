// The calls to providers that one request leads to: at most two until a provider sends its first
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
import {
  type AcquiredRoute,
  acquireRoute,
  healthOf,
  type ProviderRoute,
  routesAfter,
} from "./routing.ts";

/** Shared by all requests of the process. */
export type AnswerParts = {
  readonly clock: Clock;
  readonly log: Log;
  readonly budget: RetryBudget;
  /** Absent: nothing is counted. */
  readonly metrics?: ProviderMetrics | undefined;
  /** Called with the error of each call for which this machine lacked something. */
  readonly reportShortage?: ((error: unknown) => void) | undefined;
};

/**
 * Calls a provider, and a second one where the first fails before its first event. Never rejects:
 * an answer that no provider began fails at its first read. `findRoutes` is called before each
 * attempt, because the configuration may change between them.
 */
export async function startAnswer(
  parts: AnswerParts,
  request: ProviderRequest,
  findRoutes: () => readonly ProviderRoute[],
): Promise<ProviderAnswer> {
  const calls: RunningAttempt[] = [];
  const requestStartMs = parts.clock.now();
  const callAt = (route: AcquiredRoute): Promise<RunningAttempt> => {
    const called = new RunningAttempt(parts, request, route, { requestStartMs, calls });
    calls.push(called);
    return called.begin();
  };
  const call = (routes: readonly ProviderRoute[]): Promise<RunningAttempt> => {
    const acquired = acquireRoute(routes, request.accountId, request.signal);
    return acquired instanceof Promise
      ? waitFor(acquired, request.waits).then(callAt)
      : callAt(acquired);
  };

  parts.budget.earn();
  try {
    const first = await call(findRoutes());
    if (first.hasAnswer) return first;
    const { error, retry } = first.failure;
    const others =
      retry === "nowhere" ? [] : routesAfter(findRoutes(), first.route, retry, request.accountId);
    // Once the client has left, a second attempt has no reader.
    if (request.client.aborted || others.length === 0) throw error;
    if (request.mayRepeat && !(await request.mayRepeat())) throw error;
    if (!parts.budget.spend()) throw error;
    const second = await call(others);
    if (second.hasAnswer) return second;
    throw second.failure.error;
  } catch (error) {
    return { isPlain: false, events: failing(error), attempts: () => attemptsOf(calls) };
  }
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
  /** The circuit of a provider counts a request's failure once. */
  readonly #isRepeated: boolean;
  readonly #isSecond: boolean;
  readonly #cancelTimer: () => void;
  /** True once its answer may be read. */
  hasAnswer = false;
  #stream: ProviderStream | undefined;
  /** The first events of the answer, until they are read. */
  #unread: Read | undefined;
  #firstEventMs: number | undefined;
  #end: ProviderEnd | undefined;
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
    this.#isRepeated = calls.some((earlier) => earlier.route.connection === connection);
    this.#isSecond = calls.length > 0;
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
        omitMaxTokens: this.#request.omitMaxTokens ?? false,
        route: this.route.target,
        onAccepted: () => this.#request.onAccepted(true),
        onEnd: (end) => this.#finish(end),
        relay: this.#request.relay,
        traceHeaders: this.#tracesProvider ? this.span?.headers : undefined,
      });
    } catch (error) {
      // Nothing was sent.
      const refused = { outcome: "refused", status: 0, retry: "nowhere", isOurs: true } as const;
      this.#finish({ ...refused, error: toApiError(error) });
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
      // A stream that rejects without having called `onEnd` is a bug of ours. The concurrency limit
      // and the circuit breaker are updated all the same.
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

  #finish(end: ProviderEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#request.waits?.stop();
    this.#cancelTimer();
    this.#request.signal.removeEventListener("abort", this.#cancel);
    this.route.connection.concurrency.release();
    // After a call that we ended ourselves, the provider may still have done the work.
    const isFailed = end.outcome !== "delivered" && end.isOurs !== true;
    if (isFailed && this.#firstEventMs === undefined) this.#request.onAccepted(false);
    this.#reportToCircuit(end);
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
        "gateway.attempt": this.#isSecond ? 2 : 1,
        "error.type": error,
      },
      error,
    );
  }

  #succeed(): void {
    this.route.connection.circuit.succeed(this.#request.accountId);
    healthOf(this.route, this.#parts.clock).answer();
  }

  #reportToCircuit(end: ProviderEnd): void {
    const { probes, connection } = this.route;
    const { circuit, coolDowns } = connection;
    const { accountId } = this.#request;
    if (end.outcome !== "delivered" && end.isOurs) {
      if (isLocalShortage(end.error)) this.#parts.reportShortage?.(end.error.cause);
      circuit.noVerdict(accountId, probes);
      return;
    }
    if (end.outcome === "delivered" || end.outcome === "refused") {
      if (this.#firstEventMs === undefined) this.#succeed();
      return;
    }
    const { status, reason = end.alarm ?? end.outcome } = end;
    const lastFailure = { at: new Date(), status, reason };
    if (this.#firstEventMs === undefined) healthOf(this.route, this.#parts.clock).fail(lastFailure);
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
    if (end.coolDownMs !== undefined) {
      // A limit of tokens a minute may be met by one large request. Every other reason to ask for a
      // pause concerns the provider itself.
      const cause = end.status === 429 ? accountId : undefined;
      coolDowns.add(this.route.target.model, end.coolDownMs, cause);
      circuit.noVerdict(accountId, probes);
      return;
    }
    const scope = this.#isRepeated ? "request" : (end.scope ?? "account");
    const opened = circuit.fail(accountId, probes, scope);
    if (opened === "provider")
      this.#parts.log.error(
        { code: "provider_circuit_open", ...facts },
        "the provider fails too often: its circuit is open",
      );
    else if (opened === "account")
      this.#parts.log.warn(
        { code: "account_circuit_open", ...facts, accountId },
        "the provider fails too often for an account: its circuit is open for that account",
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

const earnedPerCall = 0.1;
const budgetMax = 20;

/**
 * Bounds second attempts to one for every ten calls, and 20 at once: failing providers must not
 * receive twice their load.
 */
export class RetryBudget {
  #attempts = budgetMax;

  /** A call began. */
  earn(): void {
    this.#attempts = Math.min(budgetMax, this.#attempts + earnedPerCall);
  }

  /** True when a second attempt may be made. Counts it. */
  spend(): boolean {
    if (this.#attempts < 1) return false;
    this.#attempts--;
    return true;
  }
}
