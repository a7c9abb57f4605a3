// The key's requests per minute, in the headers that the clients of each format read.

import type { Envelope } from "./problem.ts";
import { rfc3339 } from "./time.ts";

type RateState = { limit: number; remaining: number; resetsAt: Date | undefined };

/** Rate headers of one format; the chat ones state the reset as a duration from now. Shared endpoints have none. */
export function rateHeaders(envelope: Envelope, state: RateState, nowMs = Date.now()): Record<string, string> {
  const { limit, remaining, resetsAt } = state;
  if (envelope === "native") {
    return {
      "anthropic-ratelimit-requests-limit": String(limit),
      "anthropic-ratelimit-requests-remaining": String(remaining),
      ...(resetsAt && { "anthropic-ratelimit-requests-reset": rfc3339(resetsAt) }),
    };
  }
  if (envelope === "chat") {
    return {
      "x-ratelimit-limit-requests": String(limit),
      "x-ratelimit-remaining-requests": String(remaining),
      ...(resetsAt && { "x-ratelimit-reset-requests": `${Math.max(0, Math.ceil((resetsAt.getTime() - nowMs) / 1000))}s` }),
    };
  }
  return {};
}
