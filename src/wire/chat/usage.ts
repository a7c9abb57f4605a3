// Usage in both forms. The native one counts cached input apart; chat's `prompt_tokens` is all input, of which it names the cached
// part. In both, output includes thinking.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { type ReportedUsage, ReportedUsageSchema } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { isObject } from "../json.ts";

/** The usage known after a later report, which replaces an earlier one member by member. */
export function laterUsage(earlier: ReportedUsage | undefined, later: ReportedUsage | undefined): ReportedUsage | undefined {
  if (!earlier || !later) return later ?? earlier;
  const merged = { ...earlier };
  if (later.inputTokens !== undefined) merged.inputTokens = later.inputTokens;
  if (later.outputTokens !== undefined) merged.outputTokens = later.outputTokens;
  if (later.cacheCreationInputTokens !== undefined) merged.cacheCreationInputTokens = later.cacheCreationInputTokens;
  if (later.cacheReadInputTokens !== undefined) merged.cacheReadInputTokens = later.cacheReadInputTokens;
  if (later.thinkingTokens !== undefined) merged.thinkingTokens = later.thinkingTokens;
  return merged;
}

/** Chat's `usage`. Where the provider never told its input, `estimatedInputTokens` stands in. */
export function encodeUsage(usage: ReportedUsage | undefined, estimatedInputTokens: number): JsonObject {
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
  const completion = isObject(value.completion_tokens_details) ? value.completion_tokens_details : undefined;
  const cacheReadInputTokens = countOf(prompt.cached_tokens);
  const cacheCreationInputTokens = countOf(prompt.cache_write_tokens);
  const completed = countOf(value.completion_tokens);
  const reasoned = countOf(completion?.reasoning_tokens);
  // Some count reasoning beside the completion instead of within it; their total tells. It bounds what is added, as the reasoning does.
  const beside = Math.min(reasoned, countOf(value.total_tokens) - countOf(value.prompt_tokens) - completed);
  const outputTokens = completed + Math.max(0, beside);
  return create(ReportedUsageSchema, {
    inputTokens: Math.max(0, countOf(value.prompt_tokens) - cacheReadInputTokens - cacheCreationInputTokens),
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
