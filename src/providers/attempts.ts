// The calls to providers that one request leads to: at most two until a provider sends its first
// event. From then on the request reads that provider's own stream.

import type { Duration } from "@bufbuild/protobuf/wkt";
import type { Attempt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
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
import { type AcquiredRoute, acquireRoute, type ProviderRoute, routesAfter } from "./routing.ts";

/** Shared by all requests of the process. */
export type AnswerParts = {
  readonly clock: Clock;
  readonly log: Log;
  readonly budget: RetryBudget;
  /** Absent: nothing is counted. */
  readonly metrics?: ProviderMetrics | undefined;
  /** Called when a provider refuses our credential, account or certificate. */
  readonly onAlarm?: ((alarm: ProviderAlarm) => void) | undefined;
};

/** A fault of a provider that only the operator can repair. */
export type ProviderAlarm = {
  readonly provider: string;
  readonly model: string;
  /** What is wrong. */
  readonly alarm: string;
};

/**
 * Calls a provider, and a second one where the first fails before its first event. Never rejects:
 * an answer that no provider began fails at its first read. `findRoutes` is called before each
 * attempt, because the configuration may change between them.
 */
export async function startAnswer(
  { clock, log, budget, metrics, onAlarm }: AnswerParts,
  request: ProviderRequest,
  findRoutes: () => readonly ProviderRoute[],
): Promise<ProviderAnswer> {
  const calls: RunningAttempt[] = [];
  const attempts = () => calls.map((call) => call.attempt()).filter((one) => one !== undefined);
  const startMs = clock.now();

  const call = async (routes: readonly ProviderRoute[]): Promise<RunningAttempt> => {
    const acquired = acquireRoute(routes, request.signal);
    const route = acquired instanceof Promise ? await waitFor(acquired, request.waits) : acquired;
    const totalMs = route.connection.settings.totalMs - (clock.now() - startMs);
    const isRepeated = calls.some((earlier) => earlier.route.connection === route.connection);
    const called = new RunningAttempt(route, request, {
      ...{ clock, log, metrics, onAlarm, totalMs, isRepeated },
      isSecond: calls.length > 0,
    });
    calls.push(called);
    await called.begin();
    return called;
  };

  budget.earn();
  try {
    const first = await call(findRoutes());
    if (first.answer) return { ...first.answer, attempts };
    const { error, retry } = first.failure;
    const others = retry === "nowhere" ? [] : routesAfter(findRoutes(), first.route, retry);
    // Once the client has left, a second attempt has no reader.
    if (request.client.aborted || others.length === 0) throw error;
    if (request.mayRepeat && !(await request.mayRepeat())) throw error;
    if (!budget.spend()) throw error;
    const second = await call(others);
    if (second.answer) return { ...second.answer, attempts };
    throw second.failure.error;
  } catch (error) {
    return { isPlain: false, events: failing(error), attempts };
  }
}

/** One call to the provider of a route. It releases the route's concurrency limit when it ends. */
class RunningAttempt {
  readonly route: AcquiredRoute;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #metrics: ProviderMetrics | undefined;
  readonly #onAlarm: AnswerParts["onAlarm"];
  readonly #request: ProviderRequest;
  readonly #startMs: number;
  readonly #isRepeated: boolean;
  readonly #isSecond: boolean;
  readonly #span: Span | undefined;
  readonly #cancelTimer: () => void;
  /** Undefined until the first event. */
  answer: Omit<ProviderAnswer, "attempts"> | undefined;
  #stream: ProviderStream | undefined;
  /** Set with the first event of the answer. */
  #firstEventMs: number | undefined;
  #end: ProviderEnd | undefined;
  readonly #cancel = () => this.#stream?.stop(new ApiError("cancelled"));

  /**
   * `totalMs` is the time left for the whole request. `isRepeated`: a call of the same request to
   * the same provider failed before, and its circuit counts a request's failure once.
   */
  constructor(
    route: AcquiredRoute,
    request: ProviderRequest,
    parts: Omit<AnswerParts, "budget"> & {
      totalMs: number;
      isRepeated: boolean;
      isSecond: boolean;
    },
  ) {
    this.route = route;
    this.#clock = parts.clock;
    this.#log = parts.log;
    this.#metrics = parts.metrics;
    this.#onAlarm = parts.onAlarm;
    this.#request = request;
    this.#startMs = parts.clock.now();
    this.#isRepeated = parts.isRepeated;
    this.#isSecond = parts.isSecond;
    this.#span = request.trace?.span(`chat ${request.request.model}`, "client");
    this.#cancelTimer = parts.clock.after(Math.max(0, parts.totalMs), () =>
      this.#stream?.stop(new ApiError("timeout")),
    );
    request.signal.addEventListener("abort", this.#cancel, { once: true });
    request.waits?.start();
  }

  /** Name of the provider in the configuration. */
  get provider(): string {
    return this.route.connection.name;
  }

  /** How the call failed, where it has no `answer`. */
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
   * Resolves with the first event of the answer, or when the call has failed. Pings before that
   * event are dropped: a provider that sent only pings may still be replaced by another.
   */
  async begin(): Promise<void> {
    try {
      this.#stream = this.route.connection.provider.generate({
        request: this.#request.request,
        omitMaxTokens: this.#request.omitMaxTokens ?? false,
        route: this.route.target,
        onAccepted: () => this.#request.onAccepted(true),
        onEnd: (end) => this.#finish(end),
        acceptsRuns: this.#request.acceptsRuns ?? false,
        traceHeaders: this.#tracesProvider ? this.#span?.headers : undefined,
      });
    } catch (error) {
      // Nothing was sent.
      const refused = { outcome: "refused", status: 0, retry: "nowhere", isOurs: true } as const;
      this.#finish({ ...refused, error: toApiError(error) });
      return;
    }
    // The request was cancelled while it waited for the route.
    if (this.#request.signal.aborted) this.#cancel();
    try {
      let read = await this.#stream.next();
      while (!read.done && read.value.every(isPing)) read = await this.#stream.next();
      if (!read.done) read = this.#noteFirst(read.value);
      const events = resume(read, this.#stream);
      const { isPlain } = this.#stream;
      this.answer = { provider: this.provider, isPlain, events, span: this.#span };
    } catch (error) {
      // A stream that rejects without having called `onEnd` is a bug of ours. The concurrency limit
      // and the circuit breaker are updated all the same.
      this.#finish({ ...failed(0, { cause: error }), retry: "nowhere" });
    }
  }

  /** Returns the first events of the answer without the pings before them. */
  #noteFirst(events: Event[]): Read {
    this.#firstEventMs = this.#clock.now() - this.#startMs;
    if (this.#end === undefined) this.route.connection.circuit.succeed(this.route.accountId);
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
    if (this.#span) this.#endSpan(this.#span, end);
    this.#metrics?.count({
      provider: this.provider,
      model: this.#request.request.model,
      outcome: this.attempt()?.outcome ?? end.outcome,
      ms: this.#clock.now() - this.#startMs,
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

  #reportToCircuit(end: ProviderEnd): void {
    const { accountId, probes } = this.route;
    const { circuit, coolDowns } = this.route.connection;
    if (end.outcome !== "delivered" && end.isOurs) {
      circuit.noVerdict(accountId, probes);
      return;
    }
    if (end.outcome === "delivered" || end.outcome === "refused") {
      if (this.#firstEventMs === undefined) circuit.succeed(accountId);
      return;
    }
    const facts = {
      provider: this.provider,
      model: this.route.target.model,
      outcome: this.attempt()?.outcome,
      status: end.status,
    };
    if (end.alarm !== undefined) {
      const { provider, model } = facts;
      this.#log.error({ code: "provider_alarm", ...facts }, end.alarm);
      this.#onAlarm?.({ provider, model, alarm: end.alarm });
    } else
      this.#log.warn(
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
      this.#log.error(
        { code: "provider_circuit_open", ...facts },
        "the provider fails too often: its circuit is open",
      );
    else if (opened === "account")
      this.#log.warn(
        { code: "account_circuit_open", ...facts, accountId },
        "the provider fails too often for an account: its circuit is open for that account",
      );
  }
}

function isPing({ kind }: Event): boolean {
  return kind.case === "ping";
}

/** A provider's stream, with the read that was taken from it already. */
function resume(first: Read, stream: ProviderStream): AsyncIterable<Event[]> {
  let unread: Read | undefined = first;
  const next = (): Promise<Read> => {
    if (unread === undefined) return stream.next();
    const read = unread;
    unread = undefined;
    return Promise.resolve(read);
  };
  // Without `return`: the request's signal ends the call, not a reader that stops.
  const iterator = { next };
  return { [Symbol.asyncIterator]: () => iterator };
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
