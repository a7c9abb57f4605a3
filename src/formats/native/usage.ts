// Token usage and token counts in the native format.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  type CacheCreation,
  CacheCreationSchema,
  type ReportedUsage,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { CountTokensResponse } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../base/errors.ts";
import {
  isCount,
  isObject,
  readCount,
  restore,
  type UnknownFields,
  unknownFields,
} from "../json.ts";

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
  const decoded: ReportedUsage = { $typeName: "gateway.inference.v1.ReportedUsage" };
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
 * Drops a number that is not a token count, instead of preserving it among the extensions: clients
 * would take it for the charged usage.
 */
function readTokens(
  rest: UnknownFields,
  name: string,
  value: JsonValue | undefined,
): number | undefined {
  return typeof value === "number" && !isCount(value) ? undefined : readCount(rest, name, value);
}

/**
 * The thinking tokens have their own price, so they are typed. An object with further members is
 * also restored to `rest`, whole.
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

/** The reported members only. */
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
 * Adds the numbers that clients need: they fail without input and output, and an input of 0 stops
 * their context meters. The estimate replaces the input until the provider has reported one.
 * Undefined: the report is the charged one.
 */
export function completeUsage(
  reported: JsonObject,
  estimatedInputTokens: number | undefined,
): JsonObject {
  const [input, output] = [countOf(reported.input_tokens), countOf(reported.output_tokens)];
  const hasInput =
    input +
      countOf(reported.cache_creation_input_tokens) +
      countOf(reported.cache_read_input_tokens) >
    0;
  return {
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    ...reported,
    input_tokens:
      hasInput || estimatedInputTokens === undefined ? input : Math.max(1, estimatedInputTokens),
    output_tokens: output,
  };
}

const countOf = (value: JsonValue | undefined): number => (isCount(value) ? value : 0);

/** `later` replaces `earlier` member by member. A null replaces only an absent member. */
export function mergeUsage(earlier: JsonObject, later: JsonObject): JsonObject {
  if (!Object.values(later).includes(null)) return { ...earlier, ...later };
  const reported = Object.entries(later).filter(
    ([name, value]) => value !== null || earlier[name] === undefined,
  );
  return { ...earlier, ...Object.fromEntries(reported) };
}

/** The answer to a request to count. */
export function encodeCount(count: CountTokensResponse): JsonObject {
  return { input_tokens: count.inputTokens, ...count.extensions };
}

/** A provider's answer to a request to count. Throws `upstream_error` if it has no count. */
export function decodeCount(body: JsonObject): { inputTokens: number; extensions?: JsonObject } {
  const { input_tokens, ...rest } = body;
  if (!isCount(input_tokens)) throw new ApiError("upstream_error");
  const extensions = unknownFields(rest);
  return { inputTokens: input_tokens, ...(extensions && { extensions }) };
}
