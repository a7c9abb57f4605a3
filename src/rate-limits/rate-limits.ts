// How fast a key may go: its requests per minute, and the bucket of its free calls.

import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type RateLimit, RateLimitSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { Refusal, type RefusalFacts, type RefusalName } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Redis } from "../redis/redis.ts";
import { CountingBucket } from "./free-calls.ts";
import { createPace, type Taken } from "./limiter.ts";
import type { Nodes } from "./sliding-window.ts";
import { windowMs } from "./sliding-window.ts";

export { windowMs } from "./sliding-window.ts";

/** A key's requests per minute after one of them was admitted. */
export type RateLimitState = RateLimit;

export type Limits = {
  /**
   * Counts one request of a key; undefined when it has no limit. Throws `rate_limited`, and counts nothing then. `perMinute`: most
   * admitted in any 60 seconds; undefined means unlimited, 0 none.
   */
  take(keyId: string, perMinute: number | undefined): Promise<RateLimitState | undefined>;
  /** Counts one free call with a body of this size, in its turn; call the answer when it has ended. Throws `count_rate_limited`. */
  count(keyId: string, bytes: number): Promise<() => void>;
  /** `degraded`: Redis is configured and does not decide, so each node allows its share. */
  ready(): { state: "memory" | "redis" | "degraded" };
  /** Checks that Redis can keep the limits. Resolves within about a second, whatever it finds. */
  start(): Promise<void>;
  stop(): Promise<void>;
};

// A round trip takes well under a millisecond nearby; beyond this bound a request is better served alone.
const answerMsMaxDefault = 50;
/** Free calls of one key in any 60 seconds. */
const countCallsPerMinute = 600;

export function createLimits(parts: {
  /** Undefined: this process is the only one, and keeps the limits in its memory. */
  redis?: Redis | undefined;
  nodes: Nodes;
  log: Log;
  /** How long Redis may take for a decision, in milliseconds. */
  answerMsMax?: number;
}): Limits {
  const pace = createPace({ answerMsMax: answerMsMaxDefault, ...parts });
  const bucket = new CountingBucket();

  return {
    async take(keyId, perMinute) {
      if (perMinute === undefined) return undefined;
      const taken = await pace.take(`rpm:${keyId}`, perMinute);
      if (!taken.admitted) throw tooMany("rate_limited", "requests_per_minute", perMinute, taken);
      return create(RateLimitSchema, {
        limit: perMinute,
        remaining: Math.max(0, taken.allowed - taken.used - 1),
        resetsAt: timestampFromMs(Date.now() + windowMs),
      });
    },

    async count(keyId, bytes) {
      const end = await bucket.begin(keyId, bytes);
      const taken = await pace.take(`count:${keyId}`, countCallsPerMinute);
      if (taken.admitted) return () => end("counted");
      end("refused");
      throw tooMany("count_rate_limited", "count_calls_per_minute", countCallsPerMinute, taken);
    },

    ready: () => ({ state: !pace.shared ? "memory" : pace.shared.complete ? "redis" : "degraded" }),
    start: async () => pace.shared?.start(),
    stop: async () => pace.shared?.stop(),
  };
}

function tooMany(refusal: RefusalName, name: string, limit: number, { used, waitMs }: Taken): Refusal {
  const calls = refusal === "rate_limited" ? "request" : "counting call";
  const facts: RefusalFacts = {
    message: `This key is limited to ${limit} ${calls}${limit === 1 ? "" : "s"} a minute.`,
    limit: { name, limit: BigInt(limit), used: BigInt(used), remaining: 0n },
  };
  if (waitMs !== undefined) {
    const retryAfterMs = Math.ceil(waitMs);
    const resetsAt = timestampFromMs(Date.now() + retryAfterMs);
    return new Refusal(refusal, { ...facts, retryAfterMs, limit: { ...facts.limit, resetsAt } });
  }
  // A limit of none is met for good; a share of none only on this node.
  return new Refusal(refusal, limit === 0 ? facts : { ...facts, retryAfterMs: 1_000 });
}
