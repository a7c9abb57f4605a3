// One request as its consumer reads it: at most two attempts until a provider's first event, then that provider's own reads.

import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { Refusal } from "../errors.ts";
import type { Log } from "../log.ts";
import { RunningAttempt } from "./attempt.ts";
import type { Clock } from "./clock.ts";
import type { ProviderFailure, ProviderStream, Read } from "./provider.ts";
import type { RetryBudget } from "./retry-budget.ts";
import { type TakenWay, takeWay, type Way, waysAfter } from "./router.ts";
import type { UpstreamAsk } from "./upstream.ts";

/** What every answer needs of the process. */
export type AnswerParts = { readonly clock: Clock; readonly log: Log; readonly budget: RetryBudget };

/** The events of one request. */
export class Answer implements AsyncIterator<Event[], undefined> {
  readonly #parts: AnswerParts;
  readonly #ask: UpstreamAsk;
  readonly #findWays: () => readonly Way[];
  #attempt: RunningAttempt | undefined;
  /** Set from the first event on. */
  #flowing: ProviderStream | undefined;
  #isOver = false;
  #startMs = 0;
  readonly #cancel = () => this.#attempt?.stop(new Refusal("cancelled"));

  /** `findWays` is asked before each attempt, since the configuration may have changed in between. */
  constructor(parts: AnswerParts, ask: UpstreamAsk, findWays: () => readonly Way[]) {
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
      const way = await takeWay(this.#findWays(), signal);
      const first = await this.#try(way);
      if (first.read !== undefined) return first.read;

      const ways = first.retry === "nowhere" ? [] : waysAfter(this.#findWays(), way, first.retry);
      if (ways.length === 0 || !budget.spend()) throw first.refusal;
      const second = await this.#try(await takeWay(ways, signal));
      if (second.read !== undefined) return second.read;
      throw second.refusal;
    } catch (error) {
      this.#isOver = true;
      throw error;
    }
  }

  async #try(way: TakenWay): Promise<{ read: Read } | ({ read?: never } & Pick<ProviderFailure, "refusal" | "retry">)> {
    const { clock, log } = this.#parts;
    const totalMs = way.channel.settings.totalMs - (clock.now() - this.#startMs);
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
      return { refusal: failure.refusal, retry: failure.retry };
    }
  }
}
