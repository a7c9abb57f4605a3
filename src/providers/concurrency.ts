// How many calls an provider carries at once. A bounded number waits, in the order of their coming;
// the rest is refused at once.

import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import { WaitGroup } from "../base/wait-group.ts";
import type { ProviderSettings } from "../config/catalog.ts";

type ConcurrencySettings = Pick<ProviderSettings, "concurrency" | "queue" | "queueMs">;

/** The slots of one provider. */
export class ConcurrencyLimit {
  readonly #limits: ConcurrencySettings;
  readonly #clock: Clock;
  readonly #calls = new WaitGroup();
  readonly #waiting = new Set<() => void>();

  constructor(limits: ConcurrencySettings, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
  }

  get active(): number {
    return this.#calls.count;
  }

  /** Resolves when no slot is taken and nobody waits for one. */
  whenIdle(): Promise<void> {
    return this.#calls.wait();
  }

  /** Takes a slot if one is free. */
  tryAcquire(): boolean {
    if (this.#calls.count >= this.#limits.concurrency) return false;
    this.#calls.add();
    return true;
  }

  /**
   * Waits for a slot and takes it. Rejects with `overloaded` when too many wait or it takes too
   * long, `cancelled` on abort.
   */
  acquire(signal: AbortSignal): Promise<void> {
    if (this.tryAcquire()) return Promise.resolve();
    if (this.#waiting.size >= this.#limits.queue)
      return Promise.reject(new ApiError("overloaded", { retryAfterMs: 1_000 }));
    return new Promise((resolve, reject) => {
      const leave = (settle: () => void) => {
        cancelTimer();
        signal.removeEventListener("abort", abort);
        this.#waiting.delete(enter);
        settle();
      };
      const enter = () => leave(resolve);
      const abort = () => leave(() => reject(new ApiError("cancelled")));
      const giveUp = () => leave(() => reject(new ApiError("overloaded", { retryAfterMs: 1_000 })));
      const cancelTimer = this.#clock.after(this.#limits.queueMs, giveUp);
      signal.addEventListener("abort", abort, { once: true });
      this.#waiting.add(enter);
    });
  }

  /** Gives a slot back, to the first that waits. */
  release(): void {
    const [next] = this.#waiting;
    if (next) next();
    else this.#calls.done();
  }
}
