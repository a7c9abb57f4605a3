// The provider calls that nobody paid for, because the hold was not given after them or the client
// left before it. A key with many of them waits for its holds.

import { BoundedMap } from "../base/bounded-map.ts";
import type { Clock } from "../base/clock.ts";

const callsMax = 5;
const recentMs = 60_000;
const keysMax = 20_000;

export class UnpaidCalls {
  readonly #clock: Clock;
  /** Times of the last ones, by key. */
  readonly #byKey = new BoundedMap<string, number[]>(keysMax);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(keyId: string): void {
    const times = [...(this.#byKey.get(keyId) ?? []), this.#clock.now()];
    this.#byKey.set(keyId, times.slice(-callsMax));
  }

  /** True after five of them within a minute. */
  areMany(keyId: string): boolean {
    const times = this.#byKey.get(keyId);
    const [first] = times ?? [];
    if (times === undefined || first === undefined) return false;
    return times.length === callsMax && first > this.#clock.now() - recentMs;
  }
}
