// A request body in the Responses format → the canonical request. An unsupported member is ignored,
// unless the client would misread an answer that ignores it; such a member is an error.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  Format,
  type OutputConfig,
  OutputConfigSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { effortNames } from "../../base/reasoning-effort.ts";
import { tagsOfMetadata, withoutTags } from "../../base/tags.ts";
import {
  invalid,
  objectAt,
  optionalArray,
  optionalBoolean,
  optionalInteger,
  optionalNumber,
  optionalObject,
  optionalText,
  textAt,
} from "../chat/fields.ts";
import { partsMax, toolsMax, tooManyParts, tooManyTools } from "../codec.ts";
import { isObject } from "../json.ts";
import { decodeItems } from "./decode-items.ts";
import { decodeTools } from "./decode-tools.ts";
import { type OpenContent, sealedInclude } from "./sealed.ts";
import { type ClientTool, readClientTools } from "./tool-names.ts";

/** What a client wants of the form of its answer. */
export type Wishes = {
  /** The members of the request that the answer repeats. */
  readonly echo: JsonObject;
  /** The tools that are custom or in a namespace, by the names that the model knows. */
  readonly clientTools: ReadonlyMap<string, ClientTool>;
  /** Whether the client gets signed thinking, to return it with its next request. */
  readonly includeSealed: boolean;
  /** Whether the client gets the text of the thinking. */
  readonly includeSummary: boolean;
};

/**
 * The canonical request of a `/v1/responses` body. `open` opens the `encrypted_content` of its
 * reasoning. Throws `invalid_request` with the path of the fault.
 */
export function decodeRequest(body: JsonValue, open: OpenContent): GenerateRequest {
  if (!isObject(body)) throw invalid("", "the body must be a JSON object");
  checkCounts(body);
  const model = textAt(body.model, "model");
  if (model.trim() === "") throw invalid("model", "must not be empty");
  rejectUnanswerable(body);
  const { messages, system } = decodeItems(body, open);
  const { tools, toolChoice } = decodeTools(body);
  const temperature = optionalNumber(body.temperature, "temperature", { min: 0, max: 2 });
  const topP = optionalNumber(body.top_p, "top_p", { min: 0, max: 1 });
  // All members, in the order of the other formats, so that requests have one shape.
  return {
    $typeName: "gateway.inference.v1.GenerateRequest",
    model,
    sourceFormat: Format.RESPONSES,
    messages,
    system,
    maxTokens: optionalInteger(body.max_output_tokens, "max_output_tokens", 1),
    stream: optionalBoolean(body.stream, "stream"),
    // As in the chat format: models take up to 1, and not both.
    temperature: temperature === undefined ? undefined : Math.min(temperature, 1),
    topP: temperature === undefined ? topP : undefined,
    topK: undefined,
    stopSequences: [],
    tools,
    toolChoice,
    thinking: undefined,
    reasoningEffort: decodeEffort(body.reasoning),
    outputConfig: decodeFormat(body.text),
    cacheControl: undefined,
    vendorVersion: "",
    vendorBeta: "",
    tags: { ...tagsOfMetadata(body.metadata) },
    extensions: keepMembers(body),
  };
}

/** True if the body has an `encrypted_content`. */
export function hasSealedContent(body: JsonValue): boolean {
  if (!isObject(body) || !Array.isArray(body.input)) return false;
  return body.input.some((item) => isObject(item) && typeof item.encrypted_content === "string");
}

/** Reads what an accepted body wants of its answer. */
export function readWishes(body: JsonValue): Wishes {
  const request = isObject(body) ? body : {};
  const tools = Array.isArray(request.tools) ? request.tools : [];
  const reasoning = isObject(request.reasoning) ? request.reasoning : {};
  const { include, instructions, text, metadata } = request;
  const formatted = isObject(text) ? text : {};
  return {
    clientTools: readClientTools(tools),
    includeSealed: Array.isArray(include) && include.includes(sealedInclude),
    includeSummary: isPresent(reasoning.summary) || isPresent(reasoning.generate_summary),
    echo: {
      background: false,
      instructions: instructions ?? null,
      max_output_tokens: request.max_output_tokens ?? null,
      metadata: metadata ?? {},
      parallel_tool_calls: request.parallel_tool_calls ?? true,
      previous_response_id: null,
      prompt_cache_key: request.prompt_cache_key ?? null,
      reasoning: { effort: reasoning.effort ?? null, summary: reasoning.summary ?? null },
      // Whatever the client asked for: nothing is stored.
      store: false,
      temperature: request.temperature ?? 1,
      text: { ...formatted, format: formatted.format ?? { type: "text" } },
      tool_choice: request.tool_choice ?? "auto",
      tools,
      top_p: request.top_p ?? 1,
      truncation: "disabled",
    },
  };
}

function isPresent(value: JsonValue | undefined): boolean {
  return value !== undefined && value !== null;
}

function rejectUnanswerable(body: JsonObject): void {
  const stateless = "is not supported, because nothing is stored here: send the whole input";
  for (const name of ["previous_response_id", "conversation", "prompt"])
    if (isPresent(body[name])) throw invalid(name, stateless);
  if (optionalBoolean(body.background, "background") === true)
    throw invalid("background", "is not supported, because nothing is stored here: send false");
  optionalBoolean(body.store, "store");
  optionalObject(body.metadata, "metadata");
  optionalObject(body.reasoning, "reasoning");
  optionalText(body.prompt_cache_key, "prompt_cache_key");
  for (const [index, one] of (optionalArray(body.include, "include") ?? []).entries())
    textAt(one, `include[${index}]`);
}

function checkCounts({ input, tools }: JsonObject): void {
  if (Array.isArray(tools) && tools.length > toolsMax) throw tooManyTools();
  if (!Array.isArray(input)) return;
  let parts = input.length;
  for (const item of input) {
    if (!isObject(item)) continue;
    if (Array.isArray(item.content)) parts += item.content.length;
    if (Array.isArray(item.output)) parts += item.output.length;
  }
  if (parts > partsMax) throw tooManyParts(partsMax);
}

// Vendors add efforts. One that is not listed here has no equivalent and is ignored.
function decodeEffort(value: JsonValue | undefined): string | undefined {
  const effort = optionalText(optionalObject(value, "reasoning")?.effort, "reasoning.effort");
  return effort !== undefined && effortNames.includes(effort) ? effort : undefined;
}

function decodeFormat(value: JsonValue | undefined): OutputConfig | undefined {
  const format = optionalObject(optionalObject(value, "text")?.format, "text.format");
  if (format?.type !== "json_schema") return undefined;
  const { type, schema, ...extensions } = format;
  return create(OutputConfigSchema, {
    format: { type, schema: objectAt(schema, "text.format.schema") },
    ...(Object.keys(extensions).length > 0 && { extensions }),
  });
}

/** Members that reach a provider of this format, and no other. */
const kept = ["include", "metadata", "prompt_cache_key", "safety_identifier", "user"];

function keepMembers(body: JsonObject): JsonObject | undefined {
  const members: JsonObject = {};
  for (const name of kept) {
    const value = body[name];
    if (value !== undefined && value !== null)
      members[name] = name === "metadata" && isObject(value) ? withoutTags(value) : value;
  }
  const { verbosity, format } = isObject(body.text) ? body.text : {};
  if (typeof verbosity === "string") members.verbosity = verbosity;
  if (isObject(format) && format.type === "json_object") members.format = format;
  const { summary } = isObject(body.reasoning) ? body.reasoning : {};
  if (typeof summary === "string") members.summary = summary;
  return Object.keys(members).length > 0 ? members : undefined;
}
