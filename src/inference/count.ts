// Counting the input tokens of a request: free, and apart from the key's requests per minute.

import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import {
  type CountTokensRequest,
  type CountTokensResponse,
  CountTokensResponseSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { PriceLists } from "../billing/billing.ts";
import type { Call } from "../contract/contract.ts";
import type { PayingCaller } from "../contract/generation.ts";
import type { Providers } from "../providers/providers.ts";
import type { RateLimits } from "../rate-limits/rate-limits.ts";
import type { Catalog } from "./catalog.ts";
import { enforceFeaturePolicy } from "./feature-policy.ts";
import { affinityOf, prepareModel } from "./prepare.ts";
import { estimatedTokensOf, measurePrompt } from "./prompt-size.ts";

/** Longest wait for a provider's count. Clients wait for the count before they send a request. */
const countMaxWaitMs = 10_000;

type Parts = {
  readonly settings: { readonly catalog: Catalog };
  readonly priceLists: PriceLists;
  readonly limits: RateLimits;
  readonly providers: Providers;
};

/**
 * Counts the input tokens of a request. Throws the errors of `prepare`, `requests_not_allowed` and
 * `count_rate_limited`.
 */
export async function countTokens(
  parts: Parts,
  { request: received }: CountTokensRequest,
  { signal, waits }: Call,
  { key, priceListId }: PayingCaller,
): Promise<CountTokensResponse> {
  assert(received, "a required field");
  await parts.priceLists.ensure(priceListId);
  const catalog = parts.settings.catalog;
  const { target, request: named } = prepareModel(catalog, received, key.allowedModels);
  const hosted = { known: target.hasHostedTools, otherwise: catalog.hostedTools };
  const request = enforceFeaturePolicy(
    named,
    catalog.features,
    hosted,
    catalog.offered(target.model.id, priceListId),
  );
  if (key.requestsPerMinute === 0) throw new ApiError("requests_not_allowed");
  const size = measurePrompt(request);
  const release = await parts.limits.acquireFreeCall(key.keyId, size.textBytes);
  try {
    const timeout = AbortSignal.timeout(countMaxWaitMs);
    const counting = parts.providers.countTokens({
      request,
      affinity: () => affinityOf(key.keyId, request),
      accountId: key.accountId,
      signal: AbortSignal.any([signal, timeout]),
      waits,
    });
    const count = await counting.catch((error: unknown) => {
      if (signal.aborted || !(timeout.aborted || isUnavailable(error))) throw error;
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

// A client that gets an error counts with a paid request instead. So an unavailable provider is
// treated like one that cannot count: the answer is the gateway's estimate.
function isUnavailable(error: unknown): boolean {
  const { reason } = toApiError(error);
  return reason === "overloaded" || reason === "upstream_error" || reason === "timeout";
}
