// How long the models of an upstream are left alone, because their provider asked for it. By model, since providers' limits are.

import type { Clock } from "./clock.ts";

const longestMs = 600_000;

/** The cool-downs of one upstream. */
export class CoolDowns {
  readonly #clock: Clock;
  /** Until when, by the model's name at the provider. */
  readonly #endsMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Leaves `model` alone for `ms` from now, ten minutes at most. A longer time that was asked for before stays. */
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
