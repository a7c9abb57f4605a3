// The processor time of large requests that pay for nothing: failed ones, and counts of tokens. A
// key that used much of it waits, so that it cannot hold up the event loop for the others. While it
// waits, its connections are not read.

import type { Clock } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";

/** A body up to this size takes two milliseconds, and never waits. */
export const smallBodyBytes = 32 * 1024;

/** Milliseconds of unpaid work that a key may have done before it waits. */
const freeMs = 25;
/**
 * Milliseconds of unpaid work that are forgotten each second. Turns of 30 ms that fill one percent
 * of the time are the slowest percent of everybody else's requests.
 */
const forgottenPerSecond = 2;
/** Beyond this, no more is counted: no request waits longer than ten seconds for the one before. */
const unpaidMsMax = freeMs + 10 * forgottenPerSecond;
/** One command of a coding assistant sends 27 counting calls at once. */
const waitingMax = 100;
const sweepMs = 60_000;

/** The milliseconds of the event loop that a body takes. `items`: undefined for a broken one. */
export function workMsOf(bytes: number, items: number | undefined): number {
  const mebibytes = bytes / (1024 * 1024);
  // Measured on the two cores of a cloud machine: 19,000 parts (57,000 items, 0.7 MB) take 40 ms
  // from the parser to the provider, 30 MB of text 35 ms. The fault of a broken body is searched
  // byte by byte.
  return items === undefined ? mebibytes * 35 : mebibytes * 1.2 + items / 1_500;
}

/** One request with a large body. */
export type Work = {
  /**
   * Reports the end of the work, which lets the next request of the key begin. `unpaidMs`: the time
   * that it took, if it paid for nothing. It counts once, also after an earlier call without it.
   */
  end(unpaidMs?: number): void;
};

type KeyState = {
  unpaidMs: number;
  atMs: number;
  /** True while a request runs that had to wait. */
  isBusy: boolean;
  waiting: (() => void)[];
  cancelTimer: () => void;
};

/** One instance per listener. */
export class UnpaidWork {
  readonly #clock: Clock;
  readonly #keys = new Map<string, KeyState>();
  #sweptAtMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sweptAtMs = clock.now();
  }

  /**
   * Begins a request with a body of `bytes` (undefined: not declared). Resolves at once for a key
   * that owes nothing; the requests of others run one by one. Rejects with `too_many_bodies`.
   * Returns no promise for a small body.
   */
  begin(keyId: string, bytes: number | undefined): Work | Promise<Work> {
    return bytes !== undefined && bytes <= smallBodyBytes ? noWork : this.#beginLarge(keyId);
  }

  async #beginLarge(keyId: string): Promise<Work> {
    const key = this.#stateOf(keyId);
    const mustWait = key !== undefined && (key.unpaidMs > 0 || key.waiting.length > 0);
    if (mustWait) await this.#wait(key);
    let isRunning = mustWait;
    let isCounted = false;
    return {
      end: (unpaidMs = 0) => {
        if (unpaidMs > 0 && !isCounted) {
          isCounted = true;
          this.#add(keyId, unpaidMs);
        }
        if (!isRunning || key === undefined) return;
        isRunning = false;
        key.isBusy = false;
        this.#advance(key);
      },
    };
  }

  #wait(key: KeyState): Promise<void> {
    if (key.waiting.length >= waitingMax)
      throw new ApiError("too_many_bodies", {
        retryAfterMs: 10_000,
        limit: { name: "waiting_bodies", limit: BigInt(waitingMax), remaining: 0n },
      });
    return new Promise((resolve) => {
      key.waiting.push(resolve);
      this.#advance(key);
    });
  }

  /** Begins the next request that waits, or sets the timer for it. */
  #advance(key: KeyState): void {
    key.cancelTimer();
    if (key.isBusy || key.waiting.length === 0) return;
    this.#forget(key);
    const waitMs = ((key.unpaidMs - freeMs) / forgottenPerSecond) * 1_000;
    if (waitMs > 0) {
      key.cancelTimer = this.#clock.after(Math.ceil(waitMs), () => this.#advance(key));
      return;
    }
    key.isBusy = true;
    key.waiting.shift()?.();
  }

  #add(keyId: string, unpaidMs: number): void {
    this.#sweep();
    const key = this.#stateOf(keyId) ?? {
      unpaidMs: 0,
      atMs: this.#clock.now(),
      isBusy: false,
      waiting: [],
      cancelTimer: () => {},
    };
    this.#keys.set(keyId, key);
    key.unpaidMs = Math.min(unpaidMsMax, key.unpaidMs + unpaidMs);
  }

  #stateOf(keyId: string): KeyState | undefined {
    const key = this.#keys.get(keyId);
    if (key) this.#forget(key);
    return key;
  }

  #forget(key: KeyState): void {
    const nowMs = this.#clock.now();
    const forgotten = ((nowMs - key.atMs) / 1_000) * forgottenPerSecond;
    key.unpaidMs = Math.max(0, key.unpaidMs - forgotten);
    key.atMs = nowMs;
  }

  /** Forgets the keys that owe nothing. Runs once a minute. */
  #sweep(): void {
    if (this.#clock.now() - this.#sweptAtMs < sweepMs) return;
    this.#sweptAtMs = this.#clock.now();
    for (const [keyId, key] of this.#keys) {
      this.#forget(key);
      if (key.unpaidMs === 0 && !key.isBusy && key.waiting.length === 0) this.#keys.delete(keyId);
    }
  }
}

const noWork: Work = { end: () => {} };
