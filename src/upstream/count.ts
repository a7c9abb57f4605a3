// Counting tokens: free, so it takes no slot and tells the breaker nothing, but it keeps away from upstreams that are given a rest.

import { create } from "@bufbuild/protobuf";
import { AttemptSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Refusal, toRefusal } from "../errors.ts";
import { type Way, waitMsOf } from "./router.ts";
import type { UpstreamAsk, UpstreamCount } from "./upstream.ts";

/** The count of the first upstream that may be called. Undefined where it cannot count. */
export async function countTokens(
  { request, signal, attempts }: Omit<UpstreamAsk, "onAccepted">,
  ways: readonly Way[],
): Promise<UpstreamCount | undefined> {
  const way = ways.find((way) => waitMsOf(way) === 0);
  if (way === undefined) throw new Refusal("overloaded");
  const attempt = create(AttemptSchema, { upstream: way.channel.name });
  attempts.push(attempt);
  try {
    const count = await way.channel.provider.countTokens({ request, route: way.route }, signal);
    attempt.outcome = "delivered";
    return count;
  } catch (error) {
    const refusal = toRefusal(error);
    attempt.outcome = refusal.refusal === "upstream_refused" ? "refused" : "failed";
    throw refusal;
  }
}
