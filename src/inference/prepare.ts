// What a request turns into before any money or provider is involved: a known model, rules kept,
// limits in tokens. Pure.

import type { Block } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import type { UsageBounds } from "../billing/billing.ts";
import type { Catalog, Resolved } from "./catalog.ts";
import { enforceFeaturePolicy } from "./feature-policy.ts";
import { maxTokensOf, measurePrompt, type PromptSize } from "./prompt-size.ts";
import { limitThinking, mapReasoning, withoutThinking } from "./reasoning.ts";

export type Prepared = {
  readonly target: Resolved;
  /** Ready for a provider, except that `maxTokens` is what was asked for. */
  readonly request: GenerateRequest;
  readonly maxTokens: number;
  readonly size: PromptSize;
  readonly bounds: UsageBounds;
};

/** Output tokens of a request that does not say. */
const usualMaxTokens = 32_000;
/** Output below which starting is not worth while, where so much was asked for. */
const worthwhileTokens = 1_024;

/**
 * Throws `model_not_found`, `model_not_allowed`, `feature_not_offered`,
 * `thread_unsupported_request`, `invalid_request`.
 */
export function prepare(
  catalog: Catalog,
  ask: GenerateRequest,
  allowedModels: readonly string[],
): Prepared {
  const { target, request: named } = prepareModel(catalog, ask, allowedModels);
  const maxTokens = limitOutput(ask, target);
  const offered = enforceFeaturePolicy(named, catalog.features);
  // As with the limit: who named a model that we only guess at does not know how this one thinks.
  const fitting = target.exact ? offered : limitThinking(offered, target.model, maxTokens);
  const request = mapReasoning(fitting, target.model, maxTokens);
  const size = measurePrompt(request);
  const bounds = {
    input: maxTokensOf(size, target.model.contextTokens),
    mostExpensiveInput: size.mostExpensiveInput,
    minOutput: worthStarting(request, maxTokens),
    maxOutput: maxTokens,
  };
  return { target, request, maxTokens, size, bounds };
}

/**
 * Resolves the model and checks that the key may use it. The request then asks for no thinking
 * where the model does none. Throws `model_not_found`, `model_not_allowed`.
 */
export function prepareModel(
  catalog: Catalog,
  ask: GenerateRequest,
  allowedModels: readonly string[],
) {
  const target = catalog.resolve(ask.model, allowedModels);
  if (allowedModels.length > 0 && !allowedModels.includes(target.model.id)) {
    const message = `model: this key may not use ${target.model.id}. It may use ${allowedModels.join(", ")}.`;
    throw new ApiError("model_not_allowed", { field: "model", allowed: allowedModels, message });
  }
  const named = { ...ask, model: target.model.id };
  return { target, request: target.model.thinking === "none" ? withoutThinking(named) : named };
}

function limitOutput({ maxTokens }: GenerateRequest, { model, exact }: Resolved): number {
  if (maxTokens === undefined) return Math.min(usualMaxTokens, model.maxOutputTokens);
  if (maxTokens <= model.maxOutputTokens) return maxTokens;
  // A client that named a model we only guess at does not know this model's limit.
  if (!exact) return model.maxOutputTokens;
  const rule = `${model.maxOutputTokens}, which is the maximum allowed number of output tokens for ${model.id}`;
  throw invalidField("max_tokens", `${maxTokens} > ${rule}`);
}

// A thinking budget that max_tokens does not leave room for is the provider's to refuse.
function worthStarting({ thinking }: GenerateRequest, maxTokens: number): number {
  const budget = thinking?.budgetTokens ?? 0;
  return Math.min(maxTokens, Math.max(worthwhileTokens, budget < maxTokens ? budget + 1 : 0));
}

// Tells the conversations of a key apart, so that each meets the same provider's prompt cache
// again.

/**
 * The same text for every call of a conversation of a key, whichever method it calls.
 * `request.model` is a catalogue id.
 */
export function affinityOf(keyId: string, request: GenerateRequest): string {
  return `${keyId}/${request.model}/${conversationStart(request)}`;
}

// Enough of a conversation's beginning to tell it from others.
function conversationStart({ messages, system }: GenerateRequest): string {
  const instruction = system?.content.find((block) => !textOf(block).startsWith(attribution));
  const first = messages[0]?.content[0];
  return [instruction, first].map((block) => textOf(block).slice(0, 256)).join("/");
}

/**
 * The first line of the coding assistant's instructions, which differs from call to call of one
 * conversation.
 */
const attribution = "x-anthropic-billing-header:";

function textOf(block: Block | undefined): string {
  return block?.kind.case === "text" ? block.kind.value.text : "";
}
