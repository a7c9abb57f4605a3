// The methods that read the catalogue: a key reads the models that it may use, the operator all.

import { create } from "@bufbuild/protobuf";
import {
  type GetModelRequest,
  type GetModelResponse,
  GetModelResponseSchema,
  type ListModelsRequest,
  type ListModelsResponse,
  ListModelsResponseSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { invalidPageToken, readPage } from "../base/paging.ts";
import type { Caller } from "../contract/contract.ts";
import type { RateLimits } from "../rate-limits/rate-limits.ts";
import type { Catalog } from "./catalog.ts";

type Parts = { readonly settings: { readonly catalog: Catalog }; readonly limits: RateLimits };

/** Throws `invalid_request` and `count_rate_limited`. */
export async function listModels(
  { settings, limits }: Parts,
  request: ListModelsRequest,
  caller: Caller,
): Promise<ListModelsResponse> {
  await limitFreeCall(limits, caller);
  const all = settings.catalog.list(allowedModels(caller));
  const { entries: models, nextPageToken } = await readPage(request, {
    async read(after, limit) {
      const start = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1;
      if (after !== undefined && start === 0) throw invalidPageToken();
      return all.slice(start, start + limit);
    },
    cursorOf: ({ id }) => id,
    sizeDefault: all.length,
  });
  return create(ListModelsResponseSchema, { models, nextPageToken });
}

/**
 * Throws `count_rate_limited`, and `model_not_found` for an unknown model and for one that the key
 * may not use.
 */
export async function getModel(
  { settings, limits }: Parts,
  { model }: GetModelRequest,
  caller: Caller,
): Promise<GetModelResponse> {
  await limitFreeCall(limits, caller);
  return create(GetModelResponseSchema, {
    model: settings.catalog.describe(model, allowedModels(caller)),
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
