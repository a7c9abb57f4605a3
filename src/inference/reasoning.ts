// Adapts the thinking options of a request to its model: `reasoning_effort` of the chat format, and
// options that the client wrote for another model. Pure.

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
import { isOpenai } from "../formats/codec.ts";
import { isObject } from "../formats/json.ts";

/**
 * The request without its thinking options. Providers refuse them for models that cannot think.
 */
export function withoutThinking({ reasoningEffort, ...request }: GenerateRequest): GenerateRequest {
  const plain = withoutMembers(dropThinking(request));
  return request.outputConfig?.effort === undefined
    ? plain
    : withoutEffort(plain, request.outputConfig);
}

/** Members of OpenAI's formats that ask for thinking. */
const thinkingMembers = ["reasoning_effort", "reasoning", "thinking", "enable_thinking"];

function withoutMembers(request: GenerateRequest): GenerateRequest {
  const { extensions, sourceFormat } = request;
  if (!extensions || !isOpenai(sourceFormat)) return request;
  const kept = Object.entries(extensions).filter(([name]) => !thinkingMembers.includes(name));
  return { ...request, extensions: Object.fromEntries(kept) };
}

/**
 * The request with its effort translated into thinking options. A request that sets `thinking` or
 * forces a tool stays as it is.
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
  if (budgetTokens < budgetTokensMin || continuesWithoutThinking(request.messages)) return request;
  return thinkingOn(request, create(ThinkingSchema, { type: "enabled", budgetTokens }));
}

/**
 * The request with thinking options that `model` accepts, when the client wrote them for another
 * model: an effort that the model knows, or a budget if it knows only budgets. The budget is less
 * than `maxTokens`. Providers refuse anything else.
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
