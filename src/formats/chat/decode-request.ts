// A request body in the chat format → the canonical request, without loss: `extensions` keep every
// member as it came, and the typed fields say what providers of other formats can express. A member
// without which the client would misread its answer is an error.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  Format,
  type OutputConfig,
  OutputConfigSchema,
  type Thinking,
  ThinkingSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { effortNames } from "../../base/reasoning-effort.ts";
import { tagsOfMetadata } from "../../base/tags.ts";
import { checkCounts } from "../codec.ts";
import { isCount, isObject } from "../json.ts";
import { Carried, noSealing, type Sealing } from "../packs.ts";
import { decodeMessages } from "./decode-messages.ts";
import { decodeTools } from "./decode-tools.ts";
import {
  invalid,
  objectAt,
  optionalArray,
  optionalBoolean,
  optionalInteger,
  optionalLimit,
  optionalNumber,
  optionalObject,
  textAt,
} from "./fields.ts";

/**
 * The canonical request of a `/v1/chat/completions` body. `sealing` opens what the client returned.
 * Throws `invalid_request` with the path of the fault.
 */
export function decodeRequest(body: JsonValue, sealing: Sealing = noSealing): GenerateRequest {
  if (!isObject(body)) throw invalid("", "the body must be a JSON object");
  checkCounts(body);
  const model = textAt(body.model, "model");
  if (model.trim() === "") throw invalid("model", "must not be empty");
  rejectUnanswerable(body);

  const carried = new Carried(sealing);
  const messages = decodeMessages(body.messages, carried);
  carried.give(messages);
  const { tools, toolChoice } = decodeTools(
    // The older form has one call in an answer.
    hasFunctions(body) ? { ...body, parallel_tool_calls: false } : body,
  );
  const thinking = decodeThinking(body.thinking);
  // All members, in the order of the other formats, so that requests have one shape.
  return {
    $typeName: "gateway.inference.v1.GenerateRequest",
    model,
    messages,
    system: undefined,
    maxTokens: decodeMaxTokens(body),
    ...decodeSampling(body),
    stopSequences: decodeStop(body.stop),
    tools,
    toolChoice,
    thinking,
    outputConfig: decodeResponseFormat(body.response_format),
    cacheControl: undefined,
    tags: { ...tagsOfMetadata(body.metadata) },
    extensions: membersOf(body),
    origin: {
      $typeName: "gateway.inference.v1.Origin",
      format: Format.CHAT,
      streamed: optionalBoolean(body.stream, "stream") ?? false,
      vendorVersion: "",
      vendorBeta: "",
      reasoningEffort: thinking ? undefined : decodeEffort(body.reasoning_effort),
      leftOut: carried.leftOut,
    },
  };
}

function membersOf({ model, messages, ...members }: JsonObject): JsonObject | undefined {
  for (const _ in members) return members;
  return undefined;
}

/** True if the client requests a usage chunk at the end of the stream. */
export function wantsUsage(body: JsonValue): boolean {
  return (
    isObject(body) && isObject(body.stream_options) && body.stream_options.include_usage === true
  );
}

/** True if the client knows the older form of tools alone. */
export function hasFunctions(body: JsonValue): boolean {
  if (!isObject(body)) return false;
  const { functions, tools } = body;
  return Array.isArray(functions) && functions.length > 0 && isAbsent(tools);
}

function isAbsent(value: JsonValue | undefined): boolean {
  return value === undefined || value === null;
}

function rejectUnanswerable(body: JsonObject): void {
  if (!isAbsent(body.n) && body.n !== 1)
    throw invalid("n", "only one choice is supported: send 1 or omit it");
  const { modalities } = body;
  if (Array.isArray(modalities) && modalities.includes("audio"))
    throw invalid("modalities", "audio answers are not supported", ["text"]);
  const options = optionalObject(body.stream_options, "stream_options");
  optionalBoolean(options?.include_usage, "stream_options.include_usage");
}

function decodeMaxTokens(body: JsonObject): number | undefined {
  const legacy = optionalLimit(body.max_tokens, "max_tokens");
  return optionalLimit(body.max_completion_tokens, "max_completion_tokens") ?? legacy;
}

function decodeSampling(body: JsonObject) {
  return {
    temperature: optionalNumber(body.temperature, "temperature", { min: 0, max: 2 }),
    topP: optionalNumber(body.top_p, "top_p", { min: 0, max: 1 }),
    topK: optionalInteger(body.top_k, "top_k", 0),
  };
}

function decodeStop(stop: JsonValue | undefined): string[] {
  const texts = typeof stop === "string" ? [stop] : (optionalArray(stop, "stop") ?? []);
  // Providers reject blank sequences.
  return texts
    .map((text, index) => textAt(text, `stop[${index}]`))
    .filter((text) => text.trim() !== "");
}

const thinkingTypes: readonly JsonValue[] = ["enabled", "adaptive", "disabled"];

// `thinking` is no member of this format: clients that send it mean the native member, or one of
// another vendor. A value of another shape is ignored, as unknown members are.
function decodeThinking(value: JsonValue | undefined): Thinking | undefined {
  if (!isObject(value)) return undefined;
  const { type, budget_tokens: budget, ...extensions } = value;
  const isNative = isAbsent(budget) || isCount(budget);
  if (typeof type !== "string" || !thinkingTypes.includes(type) || !isNative) return undefined;
  return create(ThinkingSchema, {
    type,
    budgetTokens: isCount(budget) ? budget : undefined,
    extensions: Object.keys(extensions).length > 0 ? extensions : undefined,
  });
}

// Vendors add efforts. One that is not listed here has no equivalent and is ignored.
function decodeEffort(value: JsonValue | undefined): string | undefined {
  return typeof value === "string" && effortNames.includes(value) ? value : undefined;
}

function decodeResponseFormat(value: JsonValue | undefined): OutputConfig | undefined {
  const format = optionalObject(value, "response_format");
  if (format?.type !== "json_schema") return undefined;
  const described = objectAt(format.json_schema, "response_format.json_schema");
  const schema = optionalObject(described.schema, "response_format.json_schema.schema");
  return schema && create(OutputConfigSchema, { format: { type: "json_schema", schema } });
}
