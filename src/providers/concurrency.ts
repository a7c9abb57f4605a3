// Bounds the active calls of one provider. Further calls wait in a bounded queue, first in, first
// out; when it is full they fail at once.

import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import { WaitGroup } from "../base/wait-group.ts";
import type { ProviderSettings } from "../config/catalog.ts";

type ConcurrencySettings = Pick<ProviderSettings, "concurrency" | "queue" | "queueMs">;

/** The concurrency limit of one provider. */
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

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Resolves when no call is active or waits. */
  whenIdle(): Promise<void> {
    return this.#calls.wait();
  }

  /** Begins a call if the number of active calls is below the limit. */
  tryAcquire(): boolean {
    if (this.#calls.count >= this.#limits.concurrency) return false;
    this.#calls.add();
    return true;
  }

  /**
   * Begins a call as soon as the limit allows. Rejects with `overloaded` when the queue is full or
   * the wait takes too long, and with `cancelled` on abort.
   */
  acquire(signal: AbortSignal): Promise<void> {
    if (this.tryAcquire()) return Promise.resolve();
    if (this.#waiting.size >= this.#limits.queue)
      return Promise.reject(new ApiError("overloaded", { retryAfterMs: 1_000 }));
    return new Promise((resolve, reject) => {
      const finish = (settle: () => void) => {
        cancelTimer();
        signal.removeEventListener("abort", abort);
        this.#waiting.delete(admit);
        settle();
      };
      const admit = () => finish(resolve);
      const abort = () => finish(() => reject(new ApiError("cancelled")));
      const expire = () =>
        finish(() => reject(new ApiError("overloaded", { retryAfterMs: 1_000 })));
      const cancelTimer = this.#clock.after(this.#limits.queueMs, expire);
      signal.addEventListener("abort", abort, { once: true });
      this.#waiting.add(admit);
    });
  }

  /** Ends a call. The first waiting call takes its place. */
  release(): void {
    const [next] = this.#waiting;
    if (next) next();
    else this.#calls.done();
  }
}
