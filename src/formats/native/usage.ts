// The usage object of the native format.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  type CacheCreation,
  CacheCreationSchema,
  type ReportedUsage,
  ReportedUsageSchema,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { CountTokensResponse } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../base/errors.ts";
import { isObject } from "../json.ts";
import { isCount, readCount, restore, type UnknownFields, unknownFields } from "./fields.ts";

export function decodeUsage(usage: JsonObject): ReportedUsage {
  const {
    input_tokens,
    output_tokens,
    cache_creation_input_tokens,
    cache_read_input_tokens,
    cache_creation,
    output_tokens_details,
    ...rest
  } = usage;
  const decoded = create(ReportedUsageSchema);
  decoded.inputTokens = readTokens(rest, "input_tokens", input_tokens);
  decoded.outputTokens = readTokens(rest, "output_tokens", output_tokens);
  decoded.cacheCreationInputTokens = readTokens(
    rest,
    "cache_creation_input_tokens",
    cache_creation_input_tokens,
  );
  decoded.cacheReadInputTokens = readTokens(
    rest,
    "cache_read_input_tokens",
    cache_read_input_tokens,
  );
  if (isObject(cache_creation)) decoded.cacheCreation = decodeCacheCreation(cache_creation);
  else restore(rest, "cache_creation", cache_creation);
  decoded.thinkingTokens = readThinkingTokens(rest, output_tokens_details);
  decoded.extensions = unknownFields(rest);
  return decoded;
}

function decodeCacheCreation(creation: JsonObject): CacheCreation {
  const { ephemeral_5m_input_tokens, ephemeral_1h_input_tokens, ...rest } = creation;
  const decoded = create(CacheCreationSchema);
  decoded.ephemeral5mInputTokens = readTokens(
    rest,
    "ephemeral_5m_input_tokens",
    ephemeral_5m_input_tokens,
  );
  decoded.ephemeral1hInputTokens = readTokens(
    rest,
    "ephemeral_1h_input_tokens",
    ephemeral_1h_input_tokens,
  );
  decoded.extensions = unknownFields(rest);
  return decoded;
}

/**
 * A number that cannot count tokens is no report: sent on, it would stand where clients look for
 * what they were charged.
 */
function readTokens(
  rest: UnknownFields,
  name: string,
  value: JsonValue | undefined,
): number | undefined {
  return typeof value === "number" && !isCount(value) ? undefined : readCount(rest, name, value);
}

/**
 * Thinking has its own price, so its count is typed even where the object around it has more
 * members and is kept whole.
 */
function readThinkingTokens(
  rest: UnknownFields,
  details: JsonValue | undefined,
): number | undefined {
  const tokens =
    isObject(details) && isCount(details.thinking_tokens) ? details.thinking_tokens : undefined;
  if (tokens === undefined || !isObject(details) || Object.keys(details).length > 1) {
    restore(rest, "output_tokens_details", details);
  }
  return tokens;
}

/** All that was reported; what was not is absent. */
export function encodeUsage(usage: ReportedUsage): JsonObject {
  const {
    inputTokens,
    outputTokens,
    cacheCreationInputTokens,
    cacheReadInputTokens,
    cacheCreation,
    thinkingTokens,
  } = usage;
  return {
    ...(inputTokens !== undefined && { input_tokens: inputTokens }),
    ...(cacheCreationInputTokens !== undefined && {
      cache_creation_input_tokens: cacheCreationInputTokens,
    }),
    ...(cacheReadInputTokens !== undefined && { cache_read_input_tokens: cacheReadInputTokens }),
    ...(cacheCreation && { cache_creation: encodeCacheCreation(cacheCreation) }),
    ...(outputTokens !== undefined && { output_tokens: outputTokens }),
    ...(thinkingTokens !== undefined && {
      output_tokens_details: { thinking_tokens: thinkingTokens },
    }),
    ...usage.extensions,
  };
}

function encodeCacheCreation(creation: CacheCreation): JsonObject {
  const { ephemeral5mInputTokens, ephemeral1hInputTokens, extensions } = creation;
  return {
    ...(ephemeral5mInputTokens !== undefined && {
      ephemeral_5m_input_tokens: ephemeral5mInputTokens,
    }),
    ...(ephemeral1hInputTokens !== undefined && {
      ephemeral_1h_input_tokens: ephemeral1hInputTokens,
    }),
    ...extensions,
  };
}

/**
 * `told` with what every client needs: clients fail without numbers for input and output, and their
 * context meters stand still at zero, so the estimate stands in until the provider has reported its
 * input.
 */
export function completeUsage(told: JsonObject, estimatedInputTokens: number): JsonObject {
  const [input, output] = [countOf(told.input_tokens), countOf(told.output_tokens)];
  const isReported =
    input + countOf(told.cache_creation_input_tokens) + countOf(told.cache_read_input_tokens) > 0;
  return {
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    ...told,
    input_tokens: isReported ? input : Math.max(1, estimatedInputTokens),
    output_tokens: output,
  };
}

const countOf = (value: JsonValue | undefined): number => (isCount(value) ? value : 0);

/** `later` over `earlier`: totals replace totals member by member, and null says nothing. */
export function mergeUsage(earlier: JsonObject, later: JsonObject): JsonObject {
  const told = Object.entries(later).filter(
    ([name, value]) => value !== null || earlier[name] === undefined,
  );
  return { ...earlier, ...Object.fromEntries(told) };
}

// The answer to a request to count, both ways. `decodeCountRequest` and `encodeCountRequest` stand
// with the requests.

/** What a client is told. */
export function encodeCount(count: CountTokensResponse): JsonObject {
  return { input_tokens: count.inputTokens, ...count.extensions };
}

/** What a provider counted. Throws `upstream_error` for a body without a number. */
export function decodeCount(body: JsonObject): { inputTokens: number; extensions?: JsonObject } {
  const { input_tokens, ...rest } = body;
  if (!isCount(input_tokens)) throw new ApiError("upstream_error");
  const extensions = unknownFields(rest);
  return { inputTokens: input_tokens, ...(extensions && { extensions }) };
}
