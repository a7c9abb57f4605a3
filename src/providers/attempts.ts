// One request as its consumer reads it: at most two attempts until a provider's first event, then
// that provider's own reads.

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

/** What every answer needs of the process. */
export type AnswerParts = {
  readonly clock: Clock;
  readonly log: Log;
  readonly budget: RetryBudget;
};

/** The events of one request. */
export class Answer implements AsyncIterator<Event[], undefined> {
  readonly #parts: AnswerParts;
  readonly #ask: ProviderRequest;
  readonly #findWays: () => readonly ProviderRoute[];
  #attempt: RunningAttempt | undefined;
  /** Set from the first event on. */
  #flowing: ProviderStream | undefined;
  #isOver = false;
  #startMs = 0;
  readonly #cancel = () => this.#attempt?.stop(new ApiError("cancelled"));

  /**
   * `findWays` is asked before each attempt, since the configuration may have changed in between.
   */
  constructor(parts: AnswerParts, ask: ProviderRequest, findWays: () => readonly ProviderRoute[]) {
    this.#parts = parts;
    this.#ask = ask;
    this.#findWays = findWays;
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
    const { signal } = this.#ask;
    this.#startMs = clock.now();
    budget.earn();
    try {
      const way = await acquireRoute(this.#findWays(), signal);
      const first = await this.#try(way);
      if (first.read !== undefined) return first.read;

      const ways = first.retry === "nowhere" ? [] : routesAfter(this.#findWays(), way, first.retry);
      if (ways.length === 0 || !budget.spend()) throw first.error;
      const second = await this.#try(await acquireRoute(ways, signal));
      if (second.read !== undefined) return second.read;
      throw second.error;
    } catch (error) {
      this.#isOver = true;
      throw error;
    }
  }

  async #try(
    way: AcquiredRoute,
  ): Promise<{ read: Read } | ({ read?: never } & Pick<ProviderFailure, "error" | "retry">)> {
    const { clock, log } = this.#parts;
    const totalMs = way.connection.settings.totalMs - (clock.now() - this.#startMs);
    const onEnd = () => this.#ask.signal.removeEventListener("abort", this.#cancel);
    this.#ask.signal.addEventListener("abort", this.#cancel, { once: true });
    const attempt = new RunningAttempt(way, this.#ask, { clock, log, totalMs, onEnd });
    this.#attempt = attempt;
    // A hang-up while a slot was waited for has met no attempt yet.
    if (this.#ask.signal.aborted || this.#isOver) this.#cancel();
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

// One call to one provider: it holds a slot, tells the breaker how it went, and is recorded for the
// receipt.

/** A call to the provider of `way`, whose slot it gives back when it ends. */
export class RunningAttempt {
  readonly #way: AcquiredRoute;
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
   * `totalMs` is what is left of the whole request's time. `onEnd` is called once, when the call is
   * over.
   */
  constructor(
    way: AcquiredRoute,
    ask: ProviderRequest,
    parts: { clock: Clock; log: Log; totalMs: number; onEnd: () => void },
  ) {
    this.#way = way;
    this.#clock = parts.clock;
    this.#log = parts.log;
    this.#onEnd = parts.onEnd;
    this.#attempts = ask.attempts;
    this.#record = create(AttemptSchema, { provider: way.connection.name });
    this.#startMs = parts.clock.now();
    this.#cancelTimer = parts.clock.after(Math.max(0, parts.totalMs), () =>
      this.stop(new ApiError("timeout")),
    );
    const { request } = ask;
    this.#onAccepted = ask.onAccepted;
    try {
      this.#stream = way.connection.provider.generate({
        request,
        route: way.target,
        onAccepted: () => ask.onAccepted(true),
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

  /** The provider's own reads, once `readFirst` has brought the first. */
  get stream(): ProviderStream | undefined {
    return this.#stream;
  }

  /** How the call failed; undefined while it runs and when it did not. */
  get failure(): ProviderFailure | undefined {
    return this.#end === undefined || this.#end.outcome === "delivered" ? undefined : this.#end;
  }

  stop(why: ApiError): void {
    this.#stream?.stop(why);
  }

  /**
   * The first read that holds an event of the answer; pings before it are dropped, since nothing is
   * settled by them.
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
      // A stream that fails without saying so is a bug of ours; slot and breaker are put right all
      // the same.
      this.#finish({ ...failed(0, { cause: error }), retry: "nowhere" });
      throw error;
    });
  }

  // The record says "delivered" as soon as the answer flows, because a receipt is written before
  // the last event is read; what comes otherwise corrects it.
  #flow(): void {
    const afterMs = this.#clock.now() - this.#startMs;
    this.#isFlowing = true;
    this.#record.status ||= 200;
    this.#record.firstEventAfter = create(DurationSchema, {
      seconds: BigInt(Math.floor(afterMs / 1000)),
      nanos: Math.floor((afterMs % 1000) * 1_000_000),
    });
    if (this.#end !== undefined) {
      // It broke in the same read that brought the first events.
      if (this.#end.outcome === "failed") this.#record.outcome = "broke";
      return;
    }
    this.#record.outcome = "delivered";
    this.#attempts.push(this.#record);
    this.#way.connection.circuit.succeed();
  }

  #finish(end: ProviderEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#cancelTimer();
    this.#way.connection.concurrency.release();
    this.#record.status = end.status;
    this.#record.outcome = end.outcome === "failed" && this.#isFlowing ? "broke" : end.outcome;
    if (!this.#isFlowing) {
      this.#attempts.push(this.#record);
      // A call that we ended ourselves leaves the provider with the work done.
      if (end.outcome !== "delivered" && end.isOurs !== true) this.#onAccepted(false);
    }
    this.#tellBreaker(end);
    this.#onEnd();
  }

  #tellBreaker(end: ProviderEnd): void {
    const { circuit, coolDowns, name } = this.#way.connection;
    if (end.outcome !== "delivered" && end.isOurs) {
      circuit.noVerdict(this.#way.isProbe);
      return;
    }
    if (end.outcome === "delivered" || end.outcome === "refused") {
      if (!this.#isFlowing) circuit.succeed();
      return;
    }
    const facts = {
      provider: name,
      model: this.#way.target.model,
      outcome: this.#record.outcome,
      status: end.status,
    };
    if (end.alarm !== undefined) this.#log.error(facts, end.alarm);
    else this.#log.warn({ ...facts, err: end.error.facts.cause }, "an provider call failed");
    if (end.coolDownMs !== undefined) {
      coolDowns.add(this.#way.target.model, end.coolDownMs);
      circuit.noVerdict(this.#way.isProbe);
      return;
    }
    if (circuit.fail(this.#way.isProbe)) this.#log.error(facts, "the provider is given a rest");
  }
}

// Bounds second attempts, so that they cannot double the load of providers that are in trouble
// already.

const perCall = 0.1;
const most = 20;

/** One second attempt for ten calls, and a few at once. */
export class RetryBudget {
  #attempts = most;

  /** A call began. */
  earn(): void {
    this.#attempts = Math.min(most, this.#attempts + perCall);
  }

  /** True when a second attempt may be made, which is then counted. */
  spend(): boolean {
    if (this.#attempts < 1) return false;
    this.#attempts--;
    return true;
  }
}
