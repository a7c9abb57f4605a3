// Keeps calls away from a provider that fails: a circuit breaker for the provider, and cool-downs
// for single models.

import type { Clock } from "../base/clock.ts";

// The circuit opens when at least half of the last 20 calls failed, and at least five did. A
// provider with occasional failures stays in use.
const windowSize = 20;
const failuresMin = 5;
const openMinMs = 2_000;
const openMaxMs = 60_000;

/**
 * The circuit breaker of one provider. Closed: calls pass. Open: none passes, for 2 s at first.
 * Half-open, after that time: one call passes as the probe. A success of any call closes the
 * circuit. A failure of the probe opens it for twice as long, up to a minute.
 */
export class CircuitBreaker {
  readonly #clock: Clock;
  /** Results of the last calls, newest last. True is a failure. */
  #results: boolean[] = [];
  /** End of the open time. Undefined while the circuit is closed. */
  #openUntilMs: number | undefined;
  #openMs = openMinMs;
  #isProbing = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** 0 when a call may begin now, else the milliseconds until one may. */
  waitMs(): number {
    if (this.#openUntilMs !== undefined) {
      const remainingMs = Math.ceil(this.#openUntilMs - this.#clock.now());
      if (remainingMs > 0) return remainingMs;
    }
    // Half-open, with the probe under way: other calls wait for its result.
    return this.#isProbing ? this.#openMs : 0;
  }

  /** Begins a call, which `waitMs` must allow. True if the call is the probe. */
  begin(): boolean {
    if (this.#openUntilMs !== undefined) this.#isProbing = true;
    return this.#isProbing;
  }

  /** Records a call that the provider answered. */
  succeed(): void {
    if (this.#openUntilMs !== undefined) this.#close();
    this.#record(false);
  }

  /** Records a call that failed. True if this opened the circuit. */
  fail(isProbe: boolean): boolean {
    this.#record(true);
    if (this.#openUntilMs !== undefined) {
      // A call that began before the circuit opened says nothing about the provider's state now.
      if (!isProbe) return false;
      this.#openMs = Math.min(this.#openMs * 2, openMaxMs);
    } else {
      const failures = this.#results.filter(Boolean).length;
      if (failures < failuresMin || failures * 2 < this.#results.length) return false;
    }
    this.#openUntilMs = this.#clock.now() + this.#openMs;
    this.#isProbing = false;
    return true;
  }

  /** Ends a call whose result says nothing about the provider. */
  noVerdict(isProbe: boolean): void {
    if (isProbe) this.#isProbing = false;
  }

  #close(): void {
    this.#openUntilMs = undefined;
    this.#openMs = openMinMs;
    this.#isProbing = false;
    this.#results = [];
  }

  #record(failure: boolean): void {
    this.#results.push(failure);
    if (this.#results.length > windowSize) this.#results.shift();
  }
}

const coolDownMaxMs = 600_000;

/**
 * The cool-downs of one provider: times in which it asked to receive no calls. Each belongs to a
 * model, because providers limit calls by model.
 */
export class CoolDowns {
  readonly #clock: Clock;
  /** End of the cool-down, by the name of the model at the provider. */
  readonly #endsMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Begins a cool-down, of ten minutes at most. One that ends later stays. */
  add(model: string, ms: number): void {
    const endMs = this.#clock.now() + Math.min(ms, coolDownMaxMs);
    this.#endsMs.set(model, Math.max(this.#endsMs.get(model) ?? endMs, endMs));
  }

  /** 0 when a call for `model` may begin now, else the milliseconds until one may. */
  waitMs(model: string): number {
    const endMs = this.#endsMs.get(model);
    if (endMs === undefined) return 0;
    const waitMs = Math.ceil(endMs - this.#clock.now());
    if (waitMs > 0) return waitMs;
    this.#endsMs.delete(model);
    return 0;
  }
}
