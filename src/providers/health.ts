// The outcomes of the last calls to one provider for one model.

import type { Clock } from "../base/clock.ts";

/** Calls that are looked at: the last ones, and those of the last minute. */
const recentMax = 20;
const recentMs = 60_000;
/** Fewer calls say nothing. */
const callsMin = 3;

/** Why a call got no answer, for operators alone. */
export type CallFailure = {
  readonly at: Date;
  /** HTTP status; 0 if none was received. */
  readonly status: number;
  /** The provider's own words, without secrets, at most 500 characters. */
  readonly reason: string;
};

/**
 * Counts the calls for one model. They are answered by a first event, or by the refusal of a
 * request. It is unusable when of the last 20 calls, or of those of the last 60 s, there are at
 * least 3 and none was answered, until one is answered.
 */
export class ModelHealth {
  readonly #clock: Clock;
  #calls: { readonly atMs: number; readonly isAnswered: boolean }[] = [];
  #isUnusable = false;
  #lastAnsweredAtMs: number | undefined;
  #lastFailure: CallFailure | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isUnusable(): boolean {
    return this.#isUnusable;
  }

  get lastFailure(): CallFailure | undefined {
    return this.#lastFailure;
  }

  /** True if a call was answered within the last `ms`. */
  wasAnsweredWithin(ms: number): boolean {
    return this.#lastAnsweredAtMs !== undefined && this.#lastAnsweredAtMs > this.#clock.now() - ms;
  }

  answer(): void {
    this.#lastAnsweredAtMs = this.#clock.now();
    this.#isUnusable = false;
    this.#record(true);
  }

  fail(failure: CallFailure): void {
    this.#lastFailure = failure;
    this.#record(false);
    const sinceMs = this.#clock.now() - recentMs;
    const ofLastMinute = this.#calls.filter(({ atMs }) => atMs > sinceMs);
    for (const calls of [this.#calls, ofLastMinute])
      if (calls.length >= callsMin && !calls.some(({ isAnswered }) => isAnswered))
        this.#isUnusable = true;
  }

  #record(isAnswered: boolean): void {
    this.#calls.push({ atMs: this.#clock.now(), isAnswered });
    if (this.#calls.length > recentMax) this.#calls.shift();
  }
}
