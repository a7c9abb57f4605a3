// One request to the providers: at most two attempts until a provider sends its first event, then
// the reads of that provider's stream.

import { create } from "@bufbuild/protobuf";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import { type Attempt, AttemptSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { failed } from "./failures.ts";
import type {
  ProviderEnd,
  ProviderFailure,
  ProviderRequest,
  ProviderStream,
  Read,
} from "./provider.ts";
import { type AcquiredRoute, acquireRoute, type ProviderRoute, routesAfter } from "./routing.ts";

/** Shared by all requests of the process. */
export type AnswerParts = {
  readonly clock: Clock;
  readonly log: Log;
  readonly budget: RetryBudget;
};

/** The events of one request. Starts the first attempt with the first `next`. */
export class Answer implements AsyncIterator<Event[], undefined> {
  readonly #parts: AnswerParts;
  readonly #request: ProviderRequest;
  readonly #findRoutes: () => readonly ProviderRoute[];
  #attempt: RunningAttempt | undefined;
  /** Set once the first event has arrived. */
  #flowing: ProviderStream | undefined;
  #isOver = false;
  #startMs = 0;
  readonly #cancel = () => this.#attempt?.stop(new ApiError("cancelled"));

  /**
   * `findRoutes` is called before each attempt, because the configuration may change between them.
   */
  constructor(
    parts: AnswerParts,
    request: ProviderRequest,
    findRoutes: () => readonly ProviderRoute[],
  ) {
    this.#parts = parts;
    this.#request = request;
    this.#findRoutes = findRoutes;
  }

  next(): Promise<Read> {
    if (this.#flowing !== undefined) return this.#flowing.next();
    if (this.#isOver) return Promise.resolve({ done: true, value: undefined });
    return this.#begin();
  }

  async return(): Promise<Read> {
    this.#isOver = true;
    this.#cancel();
    return { done: true, value: undefined };
  }

  async #begin(): Promise<Read> {
    const { clock, budget } = this.#parts;
    const { signal } = this.#request;
    this.#startMs = clock.now();
    budget.earn();
    try {
      const route = await acquireRoute(this.#findRoutes(), signal);
      const first = await this.#try(route);
      if (first.read !== undefined) return first.read;

      const others =
        first.retry === "nowhere" ? [] : routesAfter(this.#findRoutes(), route, first.retry);
      if (others.length === 0 || !budget.spend()) throw first.error;
      const second = await this.#try(await acquireRoute(others, signal));
      if (second.read !== undefined) return second.read;
      throw second.error;
    } catch (error) {
      this.#isOver = true;
      throw error;
    }
  }

  async #try(
    route: AcquiredRoute,
  ): Promise<{ read: Read } | ({ read?: never } & Pick<ProviderFailure, "error" | "retry">)> {
    const { clock, log } = this.#parts;
    const totalMs = route.connection.settings.totalMs - (clock.now() - this.#startMs);
    const onEnd = () => this.#request.signal.removeEventListener("abort", this.#cancel);
    this.#request.signal.addEventListener("abort", this.#cancel, { once: true });
    const attempt = new RunningAttempt(route, this.#request, { clock, log, totalMs, onEnd });
    this.#attempt = attempt;
    // A cancellation during the wait for the route found no attempt to stop.
    if (this.#request.signal.aborted || this.#isOver) this.#cancel();
    try {
      const read = await attempt.readFirst();
      this.#flowing = attempt.stream;
      return { read };
    } catch (error) {
      const { failure } = attempt;
      if (failure === undefined) throw error;
      return { error: failure.error, retry: failure.retry };
    }
  }
}

/**
 * One call to one provider. When it ends, it releases the route's concurrency limit, reports the
 * result to the circuit breaker, and is recorded for the receipt.
 */
export class RunningAttempt {
  readonly #route: AcquiredRoute;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #attempts: Attempt[];
  readonly #record: Attempt;
  readonly #startMs: number;
  readonly #stream: ProviderStream | undefined;
  readonly #cancelTimer: () => void;
  readonly #onEnd: () => void;
  readonly #onAccepted: ProviderRequest["onAccepted"];
  #isFlowing = false;
  #end: ProviderEnd | undefined;

  /**
   * `totalMs` is the time left for the whole request. `onEnd` is called once, when the call has
   * ended.
   */
  constructor(
    route: AcquiredRoute,
    request: ProviderRequest,
    parts: { clock: Clock; log: Log; totalMs: number; onEnd: () => void },
  ) {
    this.#route = route;
    this.#clock = parts.clock;
    this.#log = parts.log;
    this.#onEnd = parts.onEnd;
    this.#attempts = request.attempts;
    this.#record = create(AttemptSchema, { provider: route.connection.name });
    this.#startMs = parts.clock.now();
    this.#cancelTimer = parts.clock.after(Math.max(0, parts.totalMs), () =>
      this.stop(new ApiError("timeout")),
    );
    this.#onAccepted = request.onAccepted;
    try {
      this.#stream = route.connection.provider.generate({
        request: request.request,
        route: route.target,
        onAccepted: () => request.onAccepted(true),
        onEnd: (end) => this.#finish(end),
      });
    } catch (error) {
      // Nothing was sent.
      this.#finish({
        outcome: "refused",
        status: 0,
        error: toApiError(error),
        retry: "nowhere",
        isOurs: true,
      });
    }
  }

  /** The provider's stream, to be read further once `readFirst` has returned its first read. */
  get stream(): ProviderStream | undefined {
    return this.#stream;
  }

  /** How the call failed. Undefined while it runs and after a delivered answer. */
  get failure(): ProviderFailure | undefined {
    return this.#end === undefined || this.#end.outcome === "delivered" ? undefined : this.#end;
  }

  stop(error: ApiError): void {
    this.#stream?.stop(error);
  }

  /**
   * The first read with an event of the answer. Pings before it are dropped: a provider that has
   * sent only pings may still be replaced by a second attempt.
   */
  async readFirst(): Promise<Read> {
    if (this.#stream === undefined) throw this.failure?.error;
    for (;;) {
      const read = await this.#readStream(this.#stream);
      if (read.done) return read;
      const first = read.value.findIndex(({ kind }) => kind.case !== "ping");
      if (first < 0) continue;
      this.#flow();
      return first === 0 ? read : { done: false, value: read.value.slice(first) };
    }
  }

  #readStream(stream: ProviderStream): Promise<Read> {
    return stream.next().catch((error: unknown) => {
      // A stream that rejects without having called `onEnd` is a bug of ours. The concurrency limit
      // and the circuit breaker are updated all the same.
      this.#finish({ ...failed(0, { cause: error }), retry: "nowhere" });
      throw error;
    });
  }

  // The attempt is recorded as "delivered" with its first event, because the receipt is written
  // before the last event is read. A later failure corrects the record.
  #flow(): void {
    const afterMs = this.#clock.now() - this.#startMs;
    this.#isFlowing = true;
    this.#record.status ||= 200;
    this.#record.firstEventAfter = create(DurationSchema, {
      seconds: BigInt(Math.floor(afterMs / 1000)),
      nanos: Math.floor((afterMs % 1000) * 1_000_000),
    });
    if (this.#end !== undefined) {
      // The answer broke off in the same read that brought its first events.
      if (this.#end.outcome === "failed") this.#record.outcome = "broke";
      return;
    }
    this.#record.outcome = "delivered";
    this.#attempts.push(this.#record);
    this.#route.connection.circuit.succeed();
  }

  #finish(end: ProviderEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#cancelTimer();
    this.#route.connection.concurrency.release();
    this.#record.status = end.status;
    this.#record.outcome = end.outcome === "failed" && this.#isFlowing ? "broke" : end.outcome;
    if (!this.#isFlowing) {
      this.#attempts.push(this.#record);
      // After a call that we ended ourselves, the provider may still have done the work.
      if (end.outcome !== "delivered" && end.isOurs !== true) this.#onAccepted(false);
    }
    this.#reportToCircuit(end);
    this.#onEnd();
  }

  #reportToCircuit(end: ProviderEnd): void {
    const { circuit, coolDowns, name } = this.#route.connection;
    if (end.outcome !== "delivered" && end.isOurs) {
      circuit.noVerdict(this.#route.isProbe);
      return;
    }
    if (end.outcome === "delivered" || end.outcome === "refused") {
      if (!this.#isFlowing) circuit.succeed();
      return;
    }
    const facts = {
      provider: name,
      model: this.#route.target.model,
      outcome: this.#record.outcome,
      status: end.status,
    };
    if (end.alarm !== undefined) this.#log.error(facts, end.alarm);
    else this.#log.warn({ ...facts, err: end.error.facts.cause }, "provider call failed");
    if (end.coolDownMs !== undefined) {
      coolDowns.add(this.#route.target.model, end.coolDownMs);
      circuit.noVerdict(this.#route.isProbe);
      return;
    }
    if (circuit.fail(this.#route.isProbe))
      this.#log.error(facts, "the provider fails too often: its circuit is open");
  }
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
