// The members of an answer that plain answers and streams share: usage, the reason of the end,
// errors and reasoning.

import { create, type JsonObject, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  type SourceSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  type Event,
  type ReportedUsage,
  ReportedUsageSchema,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { failure } from "../events.ts";
import { isObject } from "../json.ts";
import { textsOf } from "./fields.ts";

/** The usage after a later report, which replaces the earlier one member by member. */
export function mergeUsage(
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
  if (later.serviceTier !== undefined) merged.serviceTier = later.serviceTier;
  return merged;
}

/**
 * Chat's `usage`. `prompt_tokens` is all input, including the cached part, which the canonical
 * usage counts apart. In both, output includes thinking. `estimatedInputTokens` replaces an input
 * that the provider did not report.
 */
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

/** The usage with the tier that an answer or a chunk names. */
export function withTier(
  usage: ReportedUsage | undefined,
  { service_tier: tier }: JsonObject,
): ReportedUsage | undefined {
  return usage && typeof tier === "string" ? { ...usage, serviceTier: tier } : usage;
}

/**
 * A provider's `usage`; undefined if it is not an object. `prompt_tokens` is the total of the
 * input: cache reads are taken from it first, then cache writes up to what is left.
 */
export function decodeUsage(value: JsonValue | undefined): ReportedUsage | undefined {
  if (!isObject(value)) return undefined;
  const prompt = isObject(value.prompt_tokens_details) ? value.prompt_tokens_details : {};
  const completion = isObject(value.completion_tokens_details)
    ? value.completion_tokens_details
    : {};
  const reasoning = completion.reasoning_tokens ?? value.reasoning_tokens;
  const usage = create(ReportedUsageSchema);
  if (isTotal(value.prompt_tokens)) {
    const total = countOf(value.prompt_tokens);
    // DeepSeek and Moonshot report cache reads beside the details; LiteLLM has its own name for
    // cache writes.
    const cached =
      prompt.cached_tokens ?? value.prompt_cache_hit_tokens ?? value.cached_tokens ?? 0;
    const read = Math.min(countOf(cached), total);
    const cacheWrites = prompt.cache_write_tokens ?? prompt.cache_creation_tokens;
    const written = Math.min(countOf(cacheWrites), total - read);
    usage.inputTokens = total - read - written;
    usage.cacheReadInputTokens = read;
    usage.cacheCreationInputTokens = written;
  }
  if (isTotal(value.completion_tokens)) {
    const completed = countOf(value.completion_tokens);
    const reasoned = countOf(reasoning);
    // Some providers do not count reasoning as part of the completion, which their total shows. Add
    // it, but never more than the total or the reasoning.
    const uncounted = countOf(value.total_tokens) - countOf(value.prompt_tokens) - completed;
    usage.outputTokens = completed + Math.max(0, Math.min(reasoned, uncounted));
    if (isObject(value.completion_tokens_details) || isTotal(reasoning))
      usage.thinkingTokens = Math.min(reasoned, usage.outputTokens);
  }
  return usage;
}

function isTotal(value: JsonValue | undefined): boolean {
  return typeof value === "number" && value >= 0;
}

function countOf(value: JsonValue | undefined): number {
  return typeof value === "number" && value > 0 ? Math.min(Math.round(value), 4_294_967_295) : 0;
}

const finishReasons = new Map([
  ["max_tokens", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_use", "tool_calls"],
  ["refusal", "content_filter"],
]);

/**
 * Chat's `finish_reason`. Stop reasons without a counterpart become "stop", and so does a refusal
 * that the client has in words: SDKs take `content_filter` for an answer that was cut.
 */
export function toFinishReason(stopReason: string | undefined, isRefusalInWords = false): string {
  if (stopReason === "refusal" && isRefusalInWords) return "stop";
  return finishReasons.get(stopReason ?? "") ?? "stop";
}

/**
 * The native stop reason. A tool call in the answer overrides the provider's reason: some providers
 * send "stop" after a required call, and native clients run tools only after "tool_use".
 */
export function toStopReason(
  finishReason: string,
  content: { toolCalls: boolean; refusal: boolean },
): string {
  const reason = finishReason.toLowerCase();
  // Google's endpoint adds the kind of filter: "content_filter: RECITATION".
  if (reason.startsWith("content_filter")) return "refusal";
  switch (reason) {
    case "length":
    case "max_tokens":
    case "model_length":
      return "max_tokens";
    case "model_context_window_exceeded":
      return "model_context_window_exceeded";
    case "safety":
    case "recitation":
    case "blocklist":
    case "prohibited_content":
    case "spii":
    case "sensitive":
    case "refusal":
      return "refusal";
    default:
      if (content.toolCalls) return "tool_use";
      return content.refusal ? "refusal" : "end_turn";
  }
}

/** Message of a failure for which the provider gives no message. */
const failedDuringAnswer = "The model provider failed during its answer.";

const brokenOff = new Map([
  ["error", "api_error"],
  // Google: the model wrote a call that nobody can run.
  ["malformed_function_call", "api_error"],
  ["unexpected_tool_call", "api_error"],
  ["too_many_tool_calls", "api_error"],
  ["other", "api_error"],
  ["abort", "api_error"],
  // Z.ai and DeepSeek.
  ["network_error", "api_error"],
  ["insufficient_system_resource", "overloaded_error"],
]);

/** The failure that a finish reason reports: the provider broke its answer off. */
export function failureOfReason(finishReason: string): Event | undefined {
  const type = brokenOff.get(finishReason.toLowerCase());
  return type === undefined ? undefined : failure(type, failedDuringAnswer);
}

/** The failure of an answer that ended without content, for a reason that nobody knows. */
export function failureOfEmpty(finishReason: string | undefined): Event | undefined {
  const reason = finishReason?.toLowerCase() ?? "";
  const isKnown = /^(stop|eos|end_turn|tool_calls|function_call)$/.test(reason);
  if (isKnown || toStopReason(reason, noContent) !== "end_turn") return undefined;
  return failure("api_error", "The model provider's answer is empty.");
}

const noContent = { toolCalls: false, refusal: false };

/**
 * The error in a chunk or plain answer, as a `failure` of the native type that fits its type, code
 * and status. Forms: `{error: {…}}`, `{error: "…", error_type}`, and `{object: "error", message,
 * …}` of older servers. The failure keeps the provider's `code` and `param`.
 */
export function readProviderError(body: JsonObject): Event | undefined {
  const error = body.object === "error" ? body : body.error;
  if (error === undefined || error === null) return undefined;
  const members: JsonObject = isObject(error)
    ? error
    : { message: error, ...(body.error_type !== undefined && { type: body.error_type }) };
  const { message, type, code, status, param } = members;
  const text = typeof message === "string" && message !== "" ? message : failedDuringAnswer;
  const details: JsonObject = {};
  if (typeof code === "string") details.code = code;
  if (typeof param === "string") details.param = param;
  return failure(
    typeOf([type, code, status]),
    text,
    Object.keys(details).length > 0 ? details : undefined,
  );
}

// A rate limit of the provider is not the key's limit: for the client, the model is overloaded.
const errorTypes: readonly [pattern: RegExp, type: string][] = [
  [/overloaded|rate.?limit|too many|unavailable|\b(429|503|529)\b/i, "overloaded_error"],
  [/time.?out|\b(408|504)\b/i, "timeout_error"],
  [/authentication|permission|quota|\b(401|402|403)\b/i, "authentication_error"],
  [/invalid.?request|bad.?request|context_length|\b(400|413|422)\b/i, "invalid_request_error"],
];

function typeOf(hints: readonly (JsonValue | undefined)[]): string {
  const words = hints
    .filter((hint) => typeof hint === "string" || typeof hint === "number")
    .join(" ");
  return errorTypes.find(([pattern]) => pattern.test(words))?.[1] ?? "api_error";
}

/**
 * One entry of `reasoning_details`, which has signed thinking. Several gateways share this
 * extension: a client that returns it with its history lets the model continue its thinking, and
 * other clients ignore it.
 */
export function reasoningDetail(text: string, signature: string): JsonObject {
  return { type: "reasoning.text", text, signature };
}

/** A part of a provider's reasoning. `members`: those of its part without its text. */
export type Thought = { text: string; signature: string; members: JsonObject };

/** The plain reasoning of a delta or message, and the names that it has there. */
export function plainReasoning(from: JsonObject): { names: string[]; text: string } {
  const { reasoning_content, reasoning, reasoning_text } = from;
  const text = reasoning_content || reasoning || reasoning_text;
  // Most deltas have none.
  if (typeof text !== "string" || text === "") return noReasoning;
  const names = ["reasoning_content", "reasoning", "reasoning_text"];
  // Some providers send two, one of them empty.
  return { text, names: names.filter((name) => from[name] === text) };
}

const noReasoning = { names: [], text: "" };

function thoughtOf(
  text: JsonValue | undefined,
  signature: JsonValue | undefined,
  members: JsonObject,
): Thought {
  return {
    text: typeof text === "string" ? text : "",
    signature: typeof signature === "string" ? signature : "",
    members,
  };
}

type SourceKind = NonNullable<MessageInitShape<typeof SourceSchema>["kind"]>;

/** The images of a delta or message, as blocks. */
export function readImages({ images }: JsonObject): Block[] {
  return (Array.isArray(images) ? images : []).flatMap((image) => {
    const { url } = isObject(image) && isObject(image.image_url) ? image.image_url : {};
    if (typeof url !== "string") return [];
    const inline = /^data:([^;,]{1,100});base64,/.exec(url);
    const kind: SourceKind = inline
      ? { case: "base64", value: { mediaType: inline[1] ?? "", data: url.slice(inline[0].length) } }
      : { case: "url", value: url };
    return [create(BlockSchema, { kind: { case: "image", value: { source: { kind } } } })];
  });
}

/** A part of a provider's content: text, or a thought. */
type Part = { text: string } | { thought: Thought };

/**
 * The parts of a provider's `content`, which is a string or a list. Thoughts have the form of
 * Mistral (`thinking`, a list of texts) or of Databricks (`reasoning`, with signed summaries).
 * Parts without text, such as references, are omitted.
 */
export function readContent(content: JsonValue | undefined): Part[] {
  if (typeof content === "string") return content === "" ? [] : [{ text: content }];
  if (!Array.isArray(content)) return [];
  return content.flatMap((part): Part[] => {
    if (!isObject(part)) return [];
    if (part.type === "thinking") {
      const { type, thinking, ...members } = part;
      const text = Array.isArray(thinking) ? textsOf(thinking).join("") : thinking;
      return [{ thought: thoughtOf(text, part.signature, members) }];
    }
    if (part.type === "reasoning") {
      const summaries = Array.isArray(part.summary) ? part.summary.filter(isObject) : [];
      return summaries.map(({ text, signature }) => ({ thought: thoughtOf(text, signature, {}) }));
    }
    return typeof part.text === "string" && part.text !== "" ? [{ text: part.text }] : [];
  });
}

/** True for a choice of the answer itself: no more than one is requested. */
export function isFirstChoice({ index }: JsonObject): boolean {
  return index === undefined || index === null || index === 0;
}

/** The URL citations of a provider's delta or message. */
export function readAnnotations({ annotations }: JsonObject): JsonObject[] {
  return Array.isArray(annotations) ? annotations.filter(isObject) : [];
}

/** The entries of `tool_calls`. Some servers send one entry instead of a list. */
export function readToolCalls({ tool_calls: calls }: JsonObject): JsonObject[] {
  if (Array.isArray(calls)) return calls.filter(isObject);
  return isObject(calls) ? [calls] : [];
}
