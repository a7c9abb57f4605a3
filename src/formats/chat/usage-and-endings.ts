// Usage in both forms. The native one counts cached input apart; chat's `prompt_tokens` is all
// input, of which it names the cached part. In both, output includes thinking.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import type { Block } from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  type Event,
  type ReportedUsage,
  ReportedUsageSchema,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { failure } from "../events.ts";
import { isObject } from "../json.ts";

/** The usage known after a later report, which replaces an earlier one member by member. */
export function laterUsage(
  earlier: ReportedUsage | undefined,
  later: ReportedUsage | undefined,
): ReportedUsage | undefined {
  if (!earlier || !later) return later ?? earlier;
  const merged = { ...earlier };
  if (later.inputTokens !== undefined) merged.inputTokens = later.inputTokens;
  if (later.outputTokens !== undefined) merged.outputTokens = later.outputTokens;
  if (later.cacheCreationInputTokens !== undefined)
    merged.cacheCreationInputTokens = later.cacheCreationInputTokens;
  if (later.cacheReadInputTokens !== undefined)
    merged.cacheReadInputTokens = later.cacheReadInputTokens;
  if (later.thinkingTokens !== undefined) merged.thinkingTokens = later.thinkingTokens;
  return merged;
}

/** Chat's `usage`. Where the provider never told its input, `estimatedInputTokens` stands in. */
export function encodeUsage(
  usage: ReportedUsage | undefined,
  estimatedInputTokens: number,
): JsonObject {
  const cached = usage?.cacheReadInputTokens ?? 0;
  const written = usage?.cacheCreationInputTokens ?? 0;
  const completion = usage?.outputTokens ?? 0;
  const prompt = (usage?.inputTokens ?? estimatedInputTokens) + written + cached;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: cached, cache_write_tokens: written, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: Math.min(usage?.thinkingTokens ?? 0, completion),
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}

/** A provider's `usage`, or `undefined` where there is none. */
export function decodeUsage(value: JsonValue | undefined): ReportedUsage | undefined {
  if (!isObject(value)) return undefined;
  const prompt = isObject(value.prompt_tokens_details) ? value.prompt_tokens_details : {};
  const completion = isObject(value.completion_tokens_details)
    ? value.completion_tokens_details
    : undefined;
  const cacheReadInputTokens = countOf(prompt.cached_tokens);
  const cacheCreationInputTokens = countOf(prompt.cache_write_tokens);
  const completed = countOf(value.completion_tokens);
  const reasoned = countOf(completion?.reasoning_tokens);
  // Some count reasoning beside the completion instead of within it; their total tells. It bounds
  // what is added, as the reasoning does.
  const beside = Math.min(
    reasoned,
    countOf(value.total_tokens) - countOf(value.prompt_tokens) - completed,
  );
  const outputTokens = completed + Math.max(0, beside);
  return create(ReportedUsageSchema, {
    inputTokens: Math.max(
      0,
      countOf(value.prompt_tokens) - cacheReadInputTokens - cacheCreationInputTokens,
    ),
    outputTokens,
    cacheReadInputTokens,
    cacheCreationInputTokens,
    // Reasoning is a part of the output in either format.
    ...(completion && { thinkingTokens: Math.min(reasoned, outputTokens) }),
  });
}

function countOf(value: JsonValue | undefined): number {
  return typeof value === "number" && value > 0 ? Math.min(Math.round(value), 4_294_967_295) : 0;
}

// Why an answer ended, in both vocabularies.

const finishReasons = new Map([
  ["max_tokens", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_use", "tool_calls"],
  ["refusal", "content_filter"],
]);

/** Chat's `finish_reason`; every other way to end is a "stop" to chat clients. */
export function toFinishReason(stopReason: string | undefined): string {
  return finishReasons.get(stopReason ?? "") ?? "stop";
}

/**
 * The native stop reason. Whether tools were called decides over the provider's word where the two
 * differ: some say "stop" after a call that was demanded, and native clients run tools on
 * "tool_use" only.
 */
export function toStopReason(
  finishReason: string,
  saw: { toolCalls: boolean; refusal: boolean },
): string {
  switch (finishReason) {
    case "length":
      return "max_tokens";
    case "content_filter":
      return "refusal";
    default:
      if (saw.toolCalls) return "tool_use";
      return saw.refusal ? "refusal" : "end_turn";
  }
}

// Errors that providers report inside an answer.

/**
 * The error in a chunk or answer, as a failure of the native type that its words and numbers mean:
 * `{error: {…}}`, `{error: "…"}`, or older servers' `{object: "error", message, …}`.
 */
export function readProviderError(body: JsonObject): Event | undefined {
  const error = body.object === "error" ? body : body.error;
  if (error === undefined || error === null) return undefined;
  const { message, type, code, status } = isObject(error) ? error : { message: error };
  const sentence =
    typeof message === "string" && message !== ""
      ? message
      : "The model provider failed amid its answer.";
  return failure(typeOf([type, code, status]), sentence);
}

// The provider's rate limit is not the key's: to the client the model is busy.
const kinds: readonly [words: RegExp, type: string][] = [
  [/overloaded|rate.?limit|too many|unavailable|\b(429|503|529)\b/i, "overloaded_error"],
  [/time.?out|\b(408|504)\b/i, "timeout_error"],
  [/authentication|permission|quota|\b(401|402|403)\b/i, "authentication_error"],
  [/invalid.?request|bad.?request|context_length|\b(400|413|422)\b/i, "invalid_request_error"],
];

function typeOf(hints: readonly (JsonValue | undefined)[]): string {
  const words = hints
    .filter((hint) => typeof hint === "string" || typeof hint === "number")
    .join(" ");
  return kinds.find(([form]) => form.test(words))?.[1] ?? "api_error";
}

// Signed thinking as chat clients carry it: `reasoning_details`, an extension that several gateways
// share. A client that sends it back with its history lets the model go on with the thoughts it
// had; to others it is one more member to ignore.

/** One entry. */
export function reasoningDetail(text: string, signature: string): JsonObject {
  return { type: "reasoning.text", text, signature };
}

/** Entries for the thinking among the blocks that has a signature. */
export function signedThinking(blocks: readonly Block[]): JsonObject[] {
  return blocks.flatMap(({ kind }) =>
    kind.case === "thinking" && kind.value.signature !== ""
      ? [reasoningDetail(kind.value.thinking, kind.value.signature)]
      : [],
  );
}

/** One thought in a provider's details. Either member may be empty. */
export type Thought = { text: string; signature: string };

/**
 * The thoughts among a provider's details; entries of other kinds say nothing that can be shown.
 */
export function readDetails(details: readonly JsonValue[]): Thought[] {
  return details.flatMap((detail) => {
    if (!isObject(detail) || detail.type !== "reasoning.text") return [];
    const { text, signature } = detail;
    return [
      {
        text: typeof text === "string" ? text : "",
        signature: typeof signature === "string" ? signature : "",
      },
    ];
  });
}

/**
 * The reasoning in a provider's delta or message, under either name that providers give it. Some
 * write both, one of them empty.
 */
export function readReasoning(from: JsonObject): string {
  const named = from.reasoning_content || from.reasoning;
  return typeof named === "string" ? named : "";
}
