// Prepares a request before its hold: finds the model, enforces the rules, adapts the thinking
// options to the model, and bounds the tokens. Pure.

import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import type { LeftOut } from "../../gen/gateway/common/v1/left_out_pb.ts";
import type { Price } from "../../gen/gateway/common/v1/usage_pb.ts";
import {
  type Block,
  type Message,
  type OutputConfig,
  OutputConfigSchema,
  Role,
  type Thinking,
  ThinkingSchema,
} from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../base/errors.ts";
import { budgetTokensMin, defaultBudgetTokens, findEffort } from "../base/reasoning-effort.ts";
import { checkTags } from "../base/tags.ts";
import type { UsageBounds } from "../billing/billing.ts";
import { isSameFacts, type ModelEntry, type PriceFacts, pricedFacts } from "../config/catalog.ts";
import { isOpenai, partsMax, toolsMax, tooManyParts, tooManyTools } from "../formats/codec.ts";
import { isObject } from "../formats/json.ts";
import type { Catalog, Resolved } from "./catalog.ts";
import { enforceFeaturePolicy, webSearchesOf } from "./feature-policy.ts";
import { estimatedTokensOf, maxTokensOf, measurePrompt, type PromptSize } from "./prompt-size.ts";

export type Prepared = {
  readonly target: Resolved;
  /** Ready for a provider, except that its `maxTokens` is still the client's. */
  readonly request: GenerateRequest;
  /** Most output tokens, by the request and by the model. The hold may grant fewer. */
  readonly maxTokens: number;
  readonly size: PromptSize;
  readonly bounds: UsageBounds;
  /** The conditions of its price. */
  readonly facts: PriceFacts;
  readonly price: Price;
  /**
   * What holds of the answer, as far as a provider says what it applied, and the price of that.
   * Undefined: the price is that of the request.
   */
  applied(
    reported: PriceFacts,
    leftOut: readonly LeftOut[],
  ): { readonly facts: PriceFacts; readonly price: Price | undefined };
};

/** What providers say to a model about its tools, beside their definitions. */
const toolTokens = 600;
/** A request is not started with fewer output tokens than this, unless it requests fewer. */
const minOutputTokens = 1_024;

/**
 * Prepares a request of a key with these allowed models (empty: all), at the prices of a list.
 * Throws `model_not_found`,
 * `model_not_allowed`, `feature_not_offered`, `thread_unsupported_request`, `invalid_request`.
 */
export function prepare(
  catalog: Catalog,
  received: GenerateRequest,
  allowedModels: readonly string[],
  priceListId?: string,
): Prepared {
  checkTags(received.tags, "tags");
  const { target, request: named } = prepareModel(catalog, received, allowedModels);
  const hosted = { known: target.hasHostedTools, otherwise: catalog.hostedTools };
  const offered = catalog.offered(target.model.id, priceListId);
  const permitted = enforceFeaturePolicy(named, catalog.features, hosted, offered);
  const size = measurePrompt(permitted);
  const maxTokens = limitOutput(received, target, size);
  // The client named another model, or a limit that this one has not: it does not know how this one
  // thinks.
  const isKnown = target.exact && (received.maxTokens ?? 0) <= maxTokens;
  const fitting = isKnown ? permitted : limitThinking(permitted, target.model, maxTokens);
  const request = mapReasoning(fitting, target.model, maxTokens);
  const bounds = {
    input: Math.min(
      target.model.contextTokens,
      maxTokensOf(size, target.model.contextTokens) + (request.tools.length > 0 ? toolTokens : 0),
    ),
    mostExpensiveInput: size.mostExpensiveInput,
    webSearches: webSearchesOf(request),
    minOutput: minOutputOf(request, maxTokens),
    maxOutput: maxTokens,
  };
  const facts = factsOf(request);
  const priceOf = catalog.pricesOf(target.model.id, priceListId);
  const price = priceOf(facts);
  assert(price, "a model of the catalogue has a price");
  const applied = (reported: PriceFacts, leftOut: readonly LeftOut[]) => {
    const all = appliedFacts(facts, reported, leftOut);
    const priced = offered ? pricedFacts(all, offered) : {};
    return { facts: all, price: isSameFacts(priced, facts) ? undefined : priceOf(priced) };
  };
  return { target, request, maxTokens, size, bounds, facts, price, applied };
}

/** The members of requests that name the conditions of a price. */
const factMembers = { speed: "speed", geo: "inference_geo", tier: "service_tier" } as const;

/** What a request that the policy has passed asks for. Absent: the plain price. */
function factsOf({ extensions, origin }: GenerateRequest): PriceFacts {
  if (!extensions) return {};
  if (isOpenai(origin?.format)) {
    const { service_tier: tier } = extensions;
    return typeof tier === "string" && tier !== "default" ? { tier } : {};
  }
  const { speed, inference_geo: geo } = extensions;
  return {
    ...(speed === "fast" && { speed }),
    ...(typeof geo === "string" && { geo }),
  };
}

/** What was applied: what a provider says, else what was asked for, but for what it did not get. */
function appliedFacts(
  asked: PriceFacts,
  reported: PriceFacts,
  leftOut: readonly LeftOut[],
): PriceFacts {
  const of = (name: keyof PriceFacts) =>
    leftOut.some(({ where }) => where === factMembers[name])
      ? undefined
      : (reported[name] ?? asked[name]);
  return { speed: of("speed"), geo: of("geo"), tier: of("tier") };
}

/**
 * Resolves the model and checks that the key may use it. Removes the thinking options from the
 * request if the model cannot think. Throws `model_not_found`, `model_not_allowed`,
 * `request_too_large`.
 */
export function prepareModel(
  catalog: Catalog,
  received: GenerateRequest,
  allowedModels: readonly string[],
) {
  checkCounts(received);
  const target = catalog.resolve(received.model, allowedModels);
  if (allowedModels.length > 0 && !allowedModels.includes(target.model.id)) {
    const message = `model: this key may not use ${target.model.id}. It may use ${allowedModels.join(", ")}.`;
    throw new ApiError("model_not_allowed", { field: "model", allowed: allowedModels, message });
  }
  const named = { ...received, model: target.model.id };
  return { target, request: target.model.thinking === "none" ? withoutThinking(named) : named };
}

/** Most blocks of a request. A part of a chat message can become two, a thought and its text. */
const blocksMax = 2 * partsMax;

// The HTTP formats check their bodies before they decode them. gRPC has no such check.
function checkCounts({ messages, system, tools }: GenerateRequest): void {
  let blocks = system?.content.length ?? 0;
  for (const { content } of messages) {
    blocks += Math.max(1, content.length);
    for (const { kind } of content)
      if (kind.case === "toolResult") blocks += kind.value.content.length;
  }
  if (blocks > blocksMax) throw tooManyParts(blocksMax);
  if (tools.length > toolsMax) throw tooManyTools();
}

/**
 * A limit of the client that the model has, too, is the client's. Otherwise it is the model's
 * largest output, or what its window has room for after this prompt.
 */
function limitOutput({ maxTokens }: GenerateRequest, { model }: Resolved, size: PromptSize) {
  const { contextTokens, maxOutputTokens } = model;
  if (maxTokens !== undefined && maxTokens <= maxOutputTokens) return maxTokens;
  // Code has about three bytes a token.
  const room = contextTokens - Math.ceil((estimatedTokensOf(size) * 4) / 3);
  return Math.min(maxOutputTokens, Math.max(minOutputTokens, room));
}

// The provider refuses a thinking budget of `maxTokens` or more, so such a budget raises nothing.
function minOutputOf({ thinking }: GenerateRequest, maxTokens: number): number {
  const budget = thinking?.budgetTokens ?? 0;
  return Math.min(maxTokens, Math.max(minOutputTokens, budget < maxTokens ? budget + 1 : 0));
}

/**
 * Identifies a conversation of a key: the same text for every call of it, by any method. So a
 * conversation stays with one provider and uses its prompt cache. `request.model` is a catalogue
 * id.
 */
export function affinityOf(keyId: string, request: GenerateRequest): string {
  return `${keyId}/${request.model}/${conversationStart(request)}`;
}

// Enough of the beginning of a conversation to distinguish it from others.
function conversationStart({ messages, system }: GenerateRequest): string {
  // OpenAI's formats have the instruction among the messages.
  const instructions =
    system?.content ?? messages.find(({ role }) => role === Role.SYSTEM)?.content ?? [];
  const instruction = instructions.find((block) => !textOf(block).startsWith(attribution));
  const first = (messages.find(({ role }) => role !== Role.SYSTEM) ?? messages[0])?.content[0];
  return [instruction, first].map((block) => textOf(block).slice(0, 256)).join("/");
}

/**
 * Begins a block that a coding assistant puts before its instructions. The block differs between
 * the calls of one conversation.
 */
const attribution = "x-anthropic-billing-header:";

function textOf(block: Block | undefined): string {
  return block?.kind.case === "text" ? block.kind.value.text : "";
}

/**
 * The request without its thinking options. Providers refuse them for models that cannot think.
 */
function withoutThinking(request: GenerateRequest): GenerateRequest {
  const plain = withoutMembers(withoutAskedEffort(dropThinking(request)));
  return request.outputConfig?.effort === undefined
    ? plain
    : withoutEffort(plain, request.outputConfig);
}

function withoutAskedEffort(request: GenerateRequest): GenerateRequest {
  const { origin } = request;
  if (origin?.reasoningEffort === undefined) return request;
  return { ...request, origin: { ...origin, reasoningEffort: undefined } };
}

/** Members of OpenAI's formats that ask for thinking. */
const thinkingMembers = ["reasoning_effort", "reasoning", "thinking", "enable_thinking"];

function withoutMembers(request: GenerateRequest): GenerateRequest {
  const { extensions, origin } = request;
  if (!extensions || !isOpenai(origin?.format)) return request;
  const kept = Object.entries(extensions).filter(([name]) => !thinkingMembers.includes(name));
  return { ...request, extensions: Object.fromEntries(kept) };
}

/**
 * The request with its effort translated into thinking options. A request that sets `thinking` or
 * forces a tool stays as it is.
 */
function mapReasoning(
  request: GenerateRequest,
  model: ModelEntry,
  maxTokens: number,
): GenerateRequest {
  const { origin, thinking, toolChoice } = request;
  const reasoningEffort = origin?.reasoningEffort;
  if (reasoningEffort === undefined || thinking !== undefined) return request;
  if (reasoningEffort === "none")
    return { ...request, thinking: create(ThinkingSchema, { type: "disabled" }) };
  const known = findEffort(reasoningEffort);
  if (known === undefined || toolChoice?.type === "any" || toolChoice?.type === "tool")
    return request;

  if (model.thinking === "adaptive") {
    const outputConfig = create(OutputConfigSchema, {
      ...request.outputConfig,
      effort: known.native,
    });
    return thinkingOn({ ...request, outputConfig }, create(ThinkingSchema, { type: "adaptive" }));
  }
  const budgetTokens = Math.min(known.budgetTokens, maxTokens - 1);
  if (budgetTokens < budgetTokensMin || continuesWithoutThinking(request.messages)) return request;
  return thinkingOn(request, create(ThinkingSchema, { type: "enabled", budgetTokens }));
}

/**
 * The request with thinking options that `model` accepts, when the client wrote them for another
 * model: an effort that the model knows, or a budget if it knows only budgets. The budget is less
 * than `maxTokens`. Providers refuse anything else.
 */
function limitThinking(
  request: GenerateRequest,
  model: ModelEntry,
  maxTokens: number,
): GenerateRequest {
  const { thinking, outputConfig } = request;
  const takesEffort = model.thinking === "adaptive";
  const fitting =
    outputConfig?.effort === undefined ? request : fitEffort(request, outputConfig, takesEffort);
  const isAdaptive = thinking?.type === "adaptive" && !takesEffort;
  const budget = isAdaptive
    ? (findEffort(outputConfig?.effort)?.budgetTokens ?? defaultBudgetTokens)
    : thinking?.budgetTokens;
  if (thinking === undefined || budget === undefined) return fitting;

  const budgetTokens = Math.min(budget, maxTokens - 1);
  if (
    isAdaptive &&
    (budgetTokens < budgetTokensMin || continuesWithoutThinking(request.messages))
  ) {
    return dropThinking(fitting);
  }
  return budgetTokens < budgetTokensMin
    ? fitting
    : { ...fitting, thinking: { ...thinking, type: "enabled", budgetTokens } };
}

function fitEffort(
  request: GenerateRequest,
  outputConfig: OutputConfig,
  takesEffort: boolean,
): GenerateRequest {
  if (!takesEffort) return withoutEffort(request, outputConfig);
  const known = findEffort(outputConfig.effort);
  return known === undefined
    ? request
    : { ...request, outputConfig: { ...outputConfig, effort: known.native } };
}

/**
 * True when the conversation ends during a turn of the assistant that did not begin with thinking:
 * tool calls with their results, or the start of an answer. Providers refuse a thinking budget for
 * such a conversation.
 */
function continuesWithoutThinking(messages: readonly Message[]): boolean {
  let first: Message | undefined;
  for (const message of messages.toReversed()) {
    if (message.role === Role.ASSISTANT) first = message;
    else if (
      message.role === Role.USER &&
      !message.content.some(({ kind }) => kind.case === "toolResult")
    )
      break;
  }
  const begins = first?.content[0]?.kind.case;
  return first !== undefined && begins !== "thinking" && begins !== "redactedThinking";
}

// Providers refuse the instruction to clear earlier thinking in a request without thinking.
function dropThinking({ thinking, ...request }: GenerateRequest): GenerateRequest {
  const { context_management: management, ...others } = request.extensions ?? {};
  if (!isObject(management) || !Array.isArray(management.edits)) return request;
  const edits = management.edits.filter(
    (edit) => !(isObject(edit) && String(edit.type).startsWith("clear_thinking")),
  );
  if (edits.length === management.edits.length) return request;
  return {
    ...request,
    extensions:
      edits.length === 0 ? others : { ...others, context_management: { ...management, edits } },
  };
}

function withoutEffort(
  request: GenerateRequest,
  { effort, ...outputConfig }: OutputConfig,
): GenerateRequest {
  const isEmpty = outputConfig.format === undefined && outputConfig.extensions === undefined;
  return { ...request, outputConfig: isEmpty ? undefined : outputConfig };
}

// Providers refuse sampling fields beside thinking.
function thinkingOn(
  { temperature, topP, topK, ...request }: GenerateRequest,
  thinking: Thinking,
): GenerateRequest {
  return { ...request, thinking };
}
