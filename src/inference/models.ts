// The methods that read the catalogue: a key reads the models that it may use, the operator all.

import { create } from "@bufbuild/protobuf";
import {
  type GetModelRequest,
  type GetModelResponse,
  GetModelResponseSchema,
  InferenceService,
  type ListModelsRequest,
  type ListModelsResponse,
  ListModelsResponseSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { readPage, wholeList } from "../base/paging.ts";
import type { Billing, PriceLists } from "../billing/billing.ts";
import { decideAccount } from "../contract/callers.ts";
import type { AuthenticatedCall, Caller } from "../contract/contract.ts";
import type { RateLimits } from "../rate-limits/rate-limits.ts";
import type { Catalog } from "./catalog.ts";

type Parts = {
  readonly settings: { readonly catalog: Catalog };
  readonly limits: RateLimits;
  readonly priceLists: PriceLists;
  readonly findPriceList: Billing["findPriceList"];
};

/** Throws `invalid_request` and `count_rate_limited`. */
export async function listModels(
  parts: Parts,
  request: ListModelsRequest,
  call: Pick<AuthenticatedCall, "accountId" | "allowed" | "caller">,
): Promise<ListModelsResponse> {
  const { settings, limits } = parts;
  const { caller } = call;
  await limitFreeCall(limits, caller);
  const priceListId = await priceListOf(parts, call, request.pricesOf);
  const all = settings.catalog.list(allowedModels(caller), priceListId);
  const list = wholeList(all, ({ modelId: id }) => id);
  const { listModels } = InferenceService.method;
  const { entries: models, nextPageToken } = await readPage(listModels, request, call, list);
  return create(ListModelsResponseSchema, { models, nextPageToken });
}

/**
 * Throws `count_rate_limited`, and `model_not_found` for an unknown model and for one that the key
 * may not use.
 */
export async function getModel(
  parts: Parts,
  { modelId: model, pricesOf }: GetModelRequest,
  call: Pick<AuthenticatedCall, "allowed" | "caller">,
): Promise<GetModelResponse> {
  const { settings, limits } = parts;
  const { caller } = call;
  await limitFreeCall(limits, caller);
  const priceListId = await priceListOf(parts, call, pricesOf);
  return create(GetModelResponseSchema, {
    model: settings.catalog.describe(model, allowedModels(caller), priceListId),
  });
}

// Reading the catalogue and counting tokens share one limit. Neither counts as one of the key's
// requests per minute.
async function limitFreeCall(limits: RateLimits, caller: Caller): Promise<void> {
  if (caller.kind !== "key") return;
  const release = await limits.acquireFreeCall(caller.key.keyId, 0);
  release();
}

function allowedModels(caller: Caller): readonly string[] {
  return caller.kind === "key" ? caller.key.allowedModels : [];
}

/** The price list of an account that the caller names, or of his key. Undefined: public prices. */
async function priceListOf(
  { priceLists, findPriceList }: Parts,
  { allowed, caller }: Pick<AuthenticatedCall, "allowed" | "caller">,
  pricesOf: string,
): Promise<string | undefined> {
  const accountId = pricesOf === "" ? "" : decideAccount(allowed, caller, pricesOf);
  const ofAccount = accountId === "" ? undefined : await findPriceList(accountId);
  const priceListId = caller.kind === "key" ? caller.priceListId : ofAccount;
  await priceLists.ensure(priceListId);
  return priceListId;
}
