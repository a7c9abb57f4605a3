// Thinking in terms of what a model can do: chat's `reasoning_effort`, and what was meant for
// another model. Pure.

import { create } from "@bufbuild/protobuf";
import {
  type Message,
  type OutputConfig,
  OutputConfigSchema,
  Role,
  type Thinking,
  ThinkingSchema,
} from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { budgetTokensMin, defaultBudgetTokens, findEffort } from "../base/reasoning-effort.ts";
import type { ModelEntry } from "../config/catalog.ts";
import { isObject } from "../formats/json.ts";

/**
 * The request without anything that asks for thinking. Providers of models that do not think refuse
 * whatever does.
 */
export function withoutThinking({ reasoningEffort, ...request }: GenerateRequest): GenerateRequest {
  const thoughtless = dropThinking(request);
  return request.outputConfig?.effort === undefined
    ? thoughtless
    : withoutEffort(thoughtless, request.outputConfig);
}

/**
 * The request with its effort written as thinking. Whoever set `thinking` or forces a tool has
 * decided already.
 */
export function mapReasoning(
  request: GenerateRequest,
  model: ModelEntry,
  maxTokens: number,
): GenerateRequest {
  const { reasoningEffort, thinking, toolChoice } = request;
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
  if (budgetTokens < budgetTokensMin || goesOnWithoutThoughts(request.messages)) return request;
  return thinkingOn(request, create(ThinkingSchema, { type: "enabled", budgetTokens }));
}

/**
 * The request with its thinking as `model` takes it, when the client wrote it for another one: an
 * effort that it knows, a budget instead where it knows budgets only, and one that fits into the
 * output that it can give. Providers refuse anything else.
 */
export function limitThinking(
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
  if (isAdaptive && (budgetTokens < budgetTokensMin || goesOnWithoutThoughts(request.messages))) {
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
 * True when the conversation ends during a turn of the assistant (tool calls with their results, or
 * a beginning that it is to continue) that did not begin with thoughts. With a budget, providers
 * refuse to think from there on.
 */
function goesOnWithoutThoughts(messages: readonly Message[]): boolean {
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

// Providers refuse an instruction to clear thoughts where there are none.
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
