// Counting tokens: free, so it takes no slot and tells the breaker nothing, but it keeps away from upstreams that are given a rest.

import { Refusal } from "../errors.ts";
import { type Way, waitMsOf } from "./router.ts";
import type { UpstreamAsk, UpstreamCount } from "./upstream.ts";

/** The count of the first upstream that may be called. Undefined where it cannot count. */
export async function countTokens(
  { request, signal }: Pick<UpstreamAsk, "request" | "signal">,
  ways: readonly Way[],
): Promise<UpstreamCount | undefined> {
  const way = ways.find((one) => waitMsOf(one) === 0);
  if (way === undefined) throw new Refusal("overloaded");
  return way.channel.provider.countTokens({ request, route: way.route }, signal);
}
