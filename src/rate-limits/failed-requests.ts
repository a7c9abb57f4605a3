// The window of a key's failed requests: those that failed after their body was read. The number
// counts over all nodes, the bytes in this process.

import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { ApiError } from "../base/errors.ts";
import { ByteWindow, bytesPerMinuteMax } from "./byte-window.ts";
import type { RateLimiter } from "./limiter.ts";
import { windowMs } from "./sliding-window.ts";

const perMinuteMin = 60;
// Without a limit of its own a key may fail a hundred times a second.
const perMinuteUnlimited = 6_000;

export class FailedRequests {
  readonly #limiter: RateLimiter;
  readonly #nowMs: () => number;
  readonly #bytes = new Map<string, ByteWindow>();
  #sweptAtMs: number;

  /** `nowMs` must never go back. */
  constructor(limiter: RateLimiter, nowMs: () => number = () => performance.now()) {
    this.#limiter = limiter;
    this.#nowMs = nowMs;
    this.#sweptAtMs = nowMs();
  }

  /** Counts one failed request with a body of `bytes`. */
  async record(keyId: string, perMinute: number | undefined, bytes: number): Promise<void> {
    const nowMs = this.#nowMs();
    this.#sweep(nowMs);
    const window = this.#bytes.get(keyId) ?? new ByteWindow();
    window.expire(nowMs);
    window.add({ atMs: nowMs, bytes });
    this.#bytes.set(keyId, window);
    await this.#limiter.acquire(nameOf(keyId), limitOf(perMinute));
  }

  /** `too_many_failed` if the window of the key is full. */
  error(keyId: string, perMinute: number | undefined): ApiError | undefined {
    const limit = limitOf(perMinute);
    const waitMs = this.#limiter.knownWaitMs(nameOf(keyId), limit);
    if (waitMs > 0) return tooManyFailed("failed_requests_per_minute", limit, waitMs);
    const window = this.#bytes.get(keyId);
    if (!window) return undefined;
    const nowMs = this.#nowMs();
    window.expire(nowMs);
    const bytesWaitMs = window.waitMs(1, nowMs);
    return bytesWaitMs === undefined
      ? undefined
      : tooManyFailed("failed_bytes_per_minute", bytesPerMinuteMax, bytesWaitMs);
  }

  /** Forgets the keys without a failed request in the last minute. Runs once a minute. */
  #sweep(nowMs: number): void {
    if (nowMs - this.#sweptAtMs < windowMs) return;
    this.#sweptAtMs = nowMs;
    for (const [keyId, window] of this.#bytes) {
      window.expire(nowMs);
      if (window.isEmpty) this.#bytes.delete(keyId);
    }
  }
}

function nameOf(keyId: string): string {
  return `failed:${keyId}`;
}

function limitOf(perMinute: number | undefined): number {
  return perMinute === undefined ? perMinuteUnlimited : Math.max(perMinuteMin, 2 * perMinute);
}

function tooManyFailed(
  name: "failed_requests_per_minute" | "failed_bytes_per_minute",
  limit: number,
  waitMs: number,
): ApiError {
  const retryAfterMs = Math.ceil(waitMs);
  return new ApiError("too_many_failed", {
    retryAfterMs,
    limit: {
      name,
      limit: BigInt(limit),
      remaining: 0n,
      resetsAt: timestampFromMs(Date.now() + retryAfterMs),
    },
  });
}
