// The rate limits of a key: requests per minute, failed requests, and free calls. A request failed
// if it did after its body was read. Their number counts over all nodes, their bytes in this
// process.

import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type RateLimit, RateLimitSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, type ErrorFacts } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import type { Redis } from "../redis/redis.ts";
import { ByteWindow, bytesPerMinuteMax } from "./byte-window.ts";
import { FreeCallLimiter } from "./free-calls.ts";
import { type Acquired, createRateLimiter, type RateLimiter } from "./limiter.ts";
import { type Nodes, windowMs } from "./sliding-window.ts";

export { windowMs } from "./sliding-window.ts";

/** The requests per minute of a key, right after one was admitted. */
export type RateLimitState = RateLimit;

/** The place of one request under the limit of its key. */
export type Place = {
  readonly rateLimit: RateLimitState;
  /** Returns the place, because the request failed before it was admitted. Call at most once. */
  cancel(): void;
};

export const limitStates = ["memory", "redis", "degraded"] as const;

/**
 * `memory`: no Redis is configured, and this node is alone. `redis`: Redis decides. `degraded`:
 * there are other nodes and it does not, so each node admits its fallback quota.
 */
export type LimitState = (typeof limitStates)[number];

export type RateLimits = {
  /**
   * Reserves the place of one request of a key. `perMinute`: most requests admitted in any 60
   * seconds; undefined means unlimited, and then the result is undefined too. Throws
   * `rate_limited`, or `requests_not_allowed` for a limit of 0, without reserving a place.
   */
  acquire(keyId: string, perMinute: number | undefined): Promise<Place | undefined>;
  /**
   * Throws as `acquire` if this process knows that it would, without asking Redis and without
   * reserving a place.
   */
  check(keyId: string, perMinute: number | undefined): void;
  /** Counts a request that failed after its body of `bytes` was read. Never rejects. */
  recordFailed(keyId: string, perMinute: number | undefined, bytes: number): Promise<void>;
  /** `too_many_failed` if too many requests of the key failed in the last minute. */
  tooManyFailed(keyId: string, perMinute: number | undefined): ApiError | undefined;
  /**
   * Counts one free call with a body of `bytes`, after waiting for its turn. Call the returned
   * function when the call ends. Throws `count_rate_limited`.
   */
  acquireFreeCall(keyId: string, bytes: number): Promise<() => void>;
  state(): LimitState;
  /** Connects the limits to Redis. Resolves within about a second, also if Redis is unavailable. */
  start(): Promise<void>;
  stop(): Promise<void>;
};

// A round trip to a Redis nearby takes well under a millisecond. A request that waits longer than
// this is better decided by the node alone.
const answerMsMaxDefault = 50;
const watchMs = 1_000;
/** Free calls of one key in any 60 seconds. */
const freeCallsPerMinute = 600;

export function createRateLimits(parts: {
  redis?: Redis | undefined;
  /** Decides without Redis. Undefined: this process is the only one, and decides in its memory. */
  limiter?: RateLimiter | undefined;
  nodes: Nodes;
  log: Log;
  /** Longest time that Redis may take for a decision, in milliseconds. */
  answerMsMax?: number;
}): RateLimits {
  const limiter = parts.limiter ?? createRateLimiter({ answerMsMax: answerMsMaxDefault, ...parts });
  const freeCalls = new FreeCallLimiter();
  const failed = new FailedRequests(limiter);
  const { log } = parts;
  // Regularly, so that a node that starts and stops between two requests is known.
  const watching = new Task({
    async run() {
      if (limiter.isDivided())
        throw new Error("other gateways use this ledger, and REDIS_URL is not set");
    },
    everyMs: watchMs,
    report: warnOnce(log, {
      code: "limits_divided",
      failed: "each gateway admits its share of every rate limit",
      recovered: "this gateway is alone again, and admits every rate limit in full",
    }),
  });

  return {
    async acquire(keyId, perMinute) {
      if (perMinute === undefined) return undefined;
      if (perMinute === 0) throw new ApiError("requests_not_allowed");
      const name = `rpm:${keyId}`;
      const acquired = await limiter.acquire(name, perMinute);
      if (!acquired.admitted) throw limitExceeded("requests_per_minute", perMinute, acquired);
      return {
        rateLimit: create(RateLimitSchema, {
          limit: perMinute,
          remaining: Math.max(0, acquired.quota - acquired.used - 1),
          resetsAt: timestampFromMs(Date.now() + windowMs),
        }),
        cancel: () => limiter.cancel(name, acquired.id),
      };
    },

    check(keyId, perMinute) {
      if (perMinute === undefined) return;
      if (perMinute === 0) throw new ApiError("requests_not_allowed");
      const waitMs = limiter.knownWaitMs(`rpm:${keyId}`, perMinute);
      if (waitMs > 0)
        throw limitExceeded("requests_per_minute", perMinute, { used: perMinute, waitMs });
    },

    // Only a process that ends cannot record it.
    recordFailed: (keyId, perMinute, bytes) =>
      failed.record(keyId, perMinute, bytes).catch(() => undefined),
    tooManyFailed: (keyId, perMinute) => failed.error(keyId, perMinute),

    async acquireFreeCall(keyId, bytes) {
      const end = await freeCalls.begin(keyId, bytes);
      const acquired = await limiter.acquire(`count:${keyId}`, freeCallsPerMinute);
      if (acquired.admitted) return () => end("counted");
      end("refused");
      throw limitExceeded("count_calls_per_minute", freeCallsPerMinute, acquired);
    },

    state() {
      if (!limiter.redisWindows) return limiter.isDivided() ? "degraded" : "memory";
      return limiter.redisWindows.isSynced ? "redis" : "degraded";
    },
    async start() {
      if (limiter.redisWindows) await limiter.redisWindows.start();
      else watching.start();
    },
    async stop() {
      await Promise.all([limiter.redisWindows?.stop(), watching.stop()]);
    },
  };
}

const limitErrors = {
  requests_per_minute: { reason: "rate_limited", unit: "request" },
  count_calls_per_minute: { reason: "count_rate_limited", unit: "counting call" },
} as const;

function limitExceeded(
  name: keyof typeof limitErrors,
  limit: number,
  { used, waitMs }: Pick<Acquired, "used" | "waitMs">,
): ApiError {
  const { reason, unit } = limitErrors[name];
  const facts = {
    message: `This key is limited to ${limit} ${unit}${limit === 1 ? "" : "s"} a minute.`,
    limit: { name, limit: BigInt(limit), used: BigInt(used), remaining: 0n },
  } satisfies ErrorFacts;
  if (waitMs !== undefined) {
    const retryAfterMs = Math.ceil(waitMs);
    const resetsAt = timestampFromMs(Date.now() + retryAfterMs);
    return new ApiError(reason, { ...facts, retryAfterMs, limit: { ...facts.limit, resetsAt } });
  }
  // The fallback quota of this node is 0. Another node can admit the retry.
  return new ApiError(reason, { ...facts, retryAfterMs: 1_000 });
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * several gateways use one ledger without Redis, and each admits its share of every rate limit;
     * set `REDIS_URL`
     */
    limits_divided: true;
  }
}

const failedPerMinuteMin = 60;
// Without a limit of its own a key may fail a hundred times a second.
const failedPerMinuteUnlimited = 6_000;

class FailedRequests {
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
    await this.#limiter.acquire(failedNameOf(keyId), failedLimitOf(perMinute));
  }

  /** `too_many_failed` if the window of the key is full. */
  error(keyId: string, perMinute: number | undefined): ApiError | undefined {
    const limit = failedLimitOf(perMinute);
    const waitMs = this.#limiter.knownWaitMs(failedNameOf(keyId), limit);
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

function failedNameOf(keyId: string): string {
  return `failed:${keyId}`;
}

function failedLimitOf(perMinute: number | undefined): number {
  return perMinute === undefined
    ? failedPerMinuteUnlimited
    : Math.max(failedPerMinuteMin, 2 * perMinute);
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
