// Counting the input tokens of a request: free, and apart from the key's requests per minute.

import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import {
  type CountTokensRequest,
  type CountTokensResponse,
  CountTokensResponseSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { Call } from "../contract/contract.ts";
import type { Providers } from "../providers/providers.ts";
import type { RateLimits } from "../rate-limits/rate-limits.ts";
import type { Catalog } from "./catalog.ts";
import { enforceFeaturePolicy } from "./feature-policy.ts";
import type { PayingCaller } from "./generate.ts";
import { affinityOf, prepareModel } from "./prepare.ts";
import { estimatedTokensOf, measurePrompt } from "./prompt-size.ts";

/** How long a provider may take to count; clients wait for it before they ask anything. */
const countMsMax = 10_000;

type Parts = {
  readonly catalog: () => Catalog;
  readonly limits: RateLimits;
  readonly providers: Providers;
};

/**
 * Throws as `prepare`, `rate_limited` for a key that may make no requests at all,
 * `count_rate_limited`.
 */
export async function countTokens(
  parts: Parts,
  { request: asked }: CountTokensRequest,
  { signal }: Call,
  { key }: PayingCaller,
): Promise<CountTokensResponse> {
  assert(asked, "a required field");
  const catalog = parts.catalog();
  const { request: named } = prepareModel(catalog, asked, key.allowedModels);
  const request = enforceFeaturePolicy(named, catalog.features);
  if (key.requestsPerMinute === 0)
    throw new ApiError("rate_limited", { message: "This key may make no requests." });
  const size = measurePrompt(request);
  const release = await parts.limits.acquireFreeCall(key.keyId, size.textBytes);
  try {
    const patience = AbortSignal.timeout(countMsMax);
    const ask = {
      request,
      affinity: affinityOf(key.keyId, request),
      signal: AbortSignal.any([signal, patience]),
    };
    const count = await parts.providers.countTokens(ask).catch((error: unknown) => {
      if (signal.aborted || !(patience.aborted || isAway(error))) throw error;
    });
    return create(
      CountTokensResponseSchema,
      count
        ? { ...count, inputTokens: Math.max(1, count.inputTokens) }
        : { inputTokens: estimatedTokensOf(size), estimated: true },
    );
  } finally {
    release();
  }
}

// A client that gets no count makes one with a paid request, so a provider that cannot answer is as
// good as one that cannot count.
function isAway(error: unknown): boolean {
  const { reason } = toApiError(error);
  return reason === "overloaded" || reason === "upstream_error" || reason === "timeout";
}
