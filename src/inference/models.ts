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
import { invalidField } from "../base/errors.ts";
import type { Caller } from "../contract/contract.ts";
import type { RateLimits } from "../rate-limits/rate-limits.ts";
import type { Catalog } from "./catalog.ts";

type Parts = { readonly catalog: () => Catalog; readonly limits: RateLimits };

/** Throws `invalid_request`, and `count_rate_limited` as `getModel`. */
export async function listModels(
  { catalog, limits }: Parts,
  { pageSize, pageToken }: ListModelsRequest,
  caller: Caller,
): Promise<ListModelsResponse> {
  await paceFreeCall(limits, caller);
  if (pageSize > 1000) throw invalidField("page_size", "is at most 1000");
  const models = catalog().list(allowedModels(caller));
  const start = pageToken === "" ? 0 : models.findIndex(({ id }) => id === pageToken) + 1;
  if (pageToken !== "" && start === 0) {
    throw invalidField("page_token", "is not one that this list gave");
  }
  const page = pageSize === 0 ? models.slice(start) : models.slice(start, start + pageSize);
  const isLast = start + page.length >= models.length;
  return create(ListModelsResponseSchema, {
    models: page,
    nextPageToken: isLast ? "" : (page.at(-1)?.id ?? ""),
  });
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
