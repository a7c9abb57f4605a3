// How fast a key may go: its requests per minute, and the bucket of its free calls.

import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type RateLimit, RateLimitSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, type ErrorFacts, type ErrorReason } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Redis } from "../redis/redis.ts";
import { FreeCallLimiter } from "./free-calls.ts";
import { type Acquired, createRateLimiter } from "./limiter.ts";
import type { Nodes } from "./sliding-window.ts";
import { windowMs } from "./sliding-window.ts";

export { windowMs } from "./sliding-window.ts";

/** A key's requests per minute after one of them was admitted. */
export type RateLimitState = RateLimit;

export type RateLimits = {
  /**
   * Counts one request of a key; undefined when it has no limit. Throws `rate_limited`, and counts
   * nothing then. `perMinute`: most admitted in any 60 seconds; undefined means unlimited, 0 none.
   */
  acquire(keyId: string, perMinute: number | undefined): Promise<RateLimitState | undefined>;
  /**
   * Counts one free call with a body of this size, in its turn; call the answer when it has ended.
   * Throws `count_rate_limited`.
   */
  acquireFreeCall(keyId: string, bytes: number): Promise<() => void>;
  /** `degraded`: Redis is configured and does not decide, so each node allows its share. */
  ready(): { state: "memory" | "redis" | "degraded" };
  /** Checks that Redis can keep the limits. Resolves within about a second, whatever it finds. */
  start(): Promise<void>;
  stop(): Promise<void>;
};

// A round trip takes well under a millisecond nearby; beyond this bound a request is better served
// alone.
const answerMsMaxDefault = 50;
/** Free calls of one key in any 60 seconds. */
const countCallsPerMinute = 600;

export function createRateLimits(parts: {
  /** Undefined: this process is the only one, and keeps the limits in its memory. */
  redis?: Redis | undefined;
  nodes: Nodes;
  log: Log;
  /** How long Redis may take for a decision, in milliseconds. */
  answerMsMax?: number;
}): RateLimits {
  const pace = createRateLimiter({ answerMsMax: answerMsMaxDefault, ...parts });
  const bucket = new FreeCallLimiter();

  return {
    async acquire(keyId, perMinute) {
      if (perMinute === undefined) return undefined;
      const taken = await pace.acquire(`rpm:${keyId}`, perMinute);
      if (!taken.admitted) throw tooMany("rate_limited", "requests_per_minute", perMinute, taken);
      return create(RateLimitSchema, {
        limit: perMinute,
        remaining: Math.max(0, taken.quota - taken.used - 1),
        resetsAt: timestampFromMs(Date.now() + windowMs),
      });
    },

    async acquireFreeCall(keyId, bytes) {
      const end = await bucket.begin(keyId, bytes);
      const taken = await pace.acquire(`count:${keyId}`, countCallsPerMinute);
      if (taken.admitted) return () => end("counted");
      end("refused");
      throw tooMany("count_rate_limited", "count_calls_per_minute", countCallsPerMinute, taken);
    },

    ready: () => ({
      state: !pace.redisSync ? "memory" : pace.redisSync.synced ? "redis" : "degraded",
    }),
    start: async () => pace.redisSync?.start(),
    stop: async () => pace.redisSync?.stop(),
  };
}

function tooMany(
  apiError: ErrorReason,
  name: string,
  limit: number,
  { used, waitMs }: Acquired,
): ApiError {
  const calls = apiError === "rate_limited" ? "request" : "counting call";
  const facts = {
    message: `This key is limited to ${limit} ${calls}${limit === 1 ? "" : "s"} a minute.`,
    limit: { name, limit: BigInt(limit), used: BigInt(used), remaining: 0n },
  } satisfies ErrorFacts;
  if (waitMs !== undefined) {
    const retryAfterMs = Math.ceil(waitMs);
    const resetsAt = timestampFromMs(Date.now() + retryAfterMs);
    return new ApiError(apiError, { ...facts, retryAfterMs, limit: { ...facts.limit, resetsAt } });
  }
  // A limit of none is met for good; a share of none only on this node.
  return new ApiError(apiError, limit === 0 ? facts : { ...facts, retryAfterMs: 1_000 });
}
