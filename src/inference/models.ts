// The catalogue as callers read it: the models of a key, or all of them for the operator.

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

type Parts = { readonly catalog: () => Catalog; readonly limits: RateLimits };

/** Throws `invalid_request`, and `count_rate_limited` as `getModel`. */
export async function listModels(
  { catalog, limits }: Parts,
  request: ListModelsRequest,
  caller: Caller,
): Promise<ListModelsResponse> {
  await paceFreeCall(limits, caller);
  const all = catalog().list(allowedModels(caller));
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
 * Throws `model_not_found`, also for a model that the key may not use: what is not listed is not
 * there.
 */
export async function getModel(
  { catalog, limits }: Parts,
  { model }: GetModelRequest,
  caller: Caller,
): Promise<GetModelResponse> {
  await paceFreeCall(limits, caller);
  return create(GetModelResponseSchema, {
    model: catalog().describe(model, allowedModels(caller)),
  });
}

// Reading the catalogue shares the bucket of counting, so that neither takes from a key's requests
// per minute.
async function paceFreeCall(limits: RateLimits, caller: Caller): Promise<void> {
  if (caller.kind !== "key") return;
  const end = await limits.acquireFreeCall(caller.key.keyId, 0);
  end();
}

function allowedModels(caller: Caller): readonly string[] {
  return caller.kind === "key" ? caller.key.allowedModels : [];
}
