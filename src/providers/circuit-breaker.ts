// Keeps calls away from a provider that does not answer, and lets one of them try again from time
// to time.

import type { Clock } from "../base/clock.ts";

// Half of the last calls failed, and at least five did: a provider that fails now and then stays in
// use.
const window = 20;
const failuresMin = 5;
const openMs = 2_000;
const openMaxMs = 60_000;

/** A circuit breaker of one provider. */
export class CircuitBreaker {
  readonly #clock: Clock;
  /** The last calls, newest last; true for a failure. */
  #results: boolean[] = [];
  /** Until when it is open; undefined while it is closed. */
  #openUntilMs: number | undefined;
  #restMs = openMs;
  #isProbing = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** 0 when a call may begin now, else milliseconds until one may. */
  waitMs(): number {
    if (this.#openUntilMs !== undefined) {
      const leftMs = Math.ceil(this.#openUntilMs - this.#clock.now());
      if (leftMs > 0) return leftMs;
    }
    // Half open: the call that is under way decides for all others.
    return this.#isProbing ? this.#restMs : 0;
  }

  /**
   * A call begins; ask `waitMs` first. True when it is the one that decides whether the breaker
   * closes.
   */
  begin(): boolean {
    if (this.#openUntilMs !== undefined) this.#isProbing = true;
    return this.#isProbing;
  }

  /** The provider answered. */
  succeed(): void {
    if (this.#openUntilMs !== undefined) this.#close();
    this.#note(false);
  }

  /** The provider failed. True when this opened the breaker. */
  fail(isProbe: boolean): boolean {
    this.#note(true);
    if (this.#openUntilMs !== undefined) {
      // Of the calls that were still running when it opened only the probe says something new.
      if (!isProbe) return false;
      this.#restMs = Math.min(this.#restMs * 2, openMaxMs);
    } else {
      const failures = this.#results.filter(Boolean).length;
      if (failures < failuresMin || failures * 2 < this.#results.length) return false;
    }
    this.#openUntilMs = this.#clock.now() + this.#restMs;
    this.#isProbing = false;
    return true;
  }

  /** The call ended without telling anything about the provider. */
  noVerdict(isProbe: boolean): void {
    if (isProbe) this.#isProbing = false;
  }

  #close(): void {
    this.#openUntilMs = undefined;
    this.#restMs = openMs;
    this.#isProbing = false;
    this.#results = [];
  }

  #note(failure: boolean): void {
    this.#results.push(failure);
    if (this.#results.length > window) this.#results.shift();
  }
}

// How long the models of an provider are left alone, because their provider asked for it. By model,
// since providers' limits are.

const longestMs = 600_000;

/** The cool-downs of one provider. */
export class CoolDowns {
  readonly #clock: Clock;
  /** Until when, by the model's name at the provider. */
  readonly #endsMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Leaves `model` alone for `ms` from now, ten minutes at most. A longer time that was asked for
   * before stays.
   */
  add(model: string, ms: number): void {
    const endMs = this.#clock.now() + Math.min(ms, longestMs);
    this.#endsMs.set(model, Math.max(this.#endsMs.get(model) ?? endMs, endMs));
  }

  /** 0 when a call for `model` may begin now, else milliseconds until one may. */
  waitMs(model: string): number {
    const endMs = this.#endsMs.get(model);
    if (endMs === undefined) return 0;
    const waitMs = Math.ceil(endMs - this.#clock.now());
    if (waitMs > 0) return waitMs;
    this.#endsMs.delete(model);
    return 0;
  }
}
