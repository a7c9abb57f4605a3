// A request body in the Responses format → the canonical request. A member without which the client
// would misread its answer is an error.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  ContentForm,
  Format,
  type OutputConfig,
  OutputConfigSchema,
  type SystemPrompt,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";

import { effortNames } from "../../base/reasoning-effort.ts";
import { tagsOfMetadata } from "../../base/tags.ts";
import {
  invalid,
  objectAt,
  optionalArray,
  optionalBoolean,
  optionalLimit,
  optionalNumber,
  optionalObject,
  optionalText,
  textAt,
} from "../chat/fields.ts";
import { partsMax, toolsMax, tooManyParts, tooManyTools } from "../codec.ts";
import { toolListsOf } from "../hosted-tools.ts";
import { isObject } from "../json.ts";
import { Carried, noSealing, type Sealing } from "../packs.ts";
import type { ClientTool } from "../tool-names.ts";
import { textBlock } from "../turns.ts";
import { readClientTools } from "./client-tools.ts";
import { decodeItems } from "./decode-items.ts";
import { decodeTools } from "./decode-tools.ts";

/** The entry of `include` that asks for signed thinking, sealed. */
export const sealedInclude = "reasoning.encrypted_content";

/** What a client wants of the form of its answer. */
export type Wishes = {
  /** The members of the request that the answer repeats. */
  readonly echo: JsonObject;
  /** The tools that are no plain functions, by the names that the model knows. */
  readonly clientTools: ReadonlyMap<string, ClientTool>;
  /** Whether the client gets signed thinking, to return it with its next request. */
  readonly includeSealed: boolean;
  /** Whether the client gets the text of the thinking. */
  readonly includeSummary: boolean;
};

/**
 * The canonical request of a `/v1/responses` body, without loss: `extensions` keep every member as
 * it came, and the typed fields say what providers of other formats can express. `sealing` opens
 * what the client returned. Throws `invalid_request` with the path of the fault.
 */
export function decodeRequest(body: JsonValue, sealing: Sealing = noSealing): GenerateRequest {
  if (!isObject(body)) throw invalid("", "the body must be a JSON object");
  checkCounts(body);
  const model = textAt(body.model, "model");
  if (model.trim() === "") throw invalid("model", "must not be empty");
  rejectUnanswerable(body);
  const carried = new Carried(sealing);
  const instruction = optionalText(body.instructions, "instructions") ?? "";
  const messages = decodeItems(body.input, instruction, carried);
  carried.give(messages);
  const { tools, toolChoice } = decodeTools(body);
  // All members, in the order of the other formats, so that requests have one shape.
  return {
    $typeName: "gateway.inference.v1.GenerateRequest",
    model,
    messages,
    system: instruction.trim() === "" ? undefined : systemOf(instruction),
    maxTokens: optionalLimit(body.max_output_tokens, "max_output_tokens"),
    temperature: optionalNumber(body.temperature, "temperature", { min: 0, max: 2 }),
    topP: optionalNumber(body.top_p, "top_p", { min: 0, max: 1 }),
    topK: undefined,
    stopSequences: [],
    tools,
    toolChoice,
    thinking: undefined,
    outputConfig: decodeFormat(body.text),
    cacheControl: undefined,
    tags: { ...tagsOfMetadata(body.metadata) },
    extensions: membersOf(body),
    origin: {
      $typeName: "gateway.inference.v1.Origin",
      format: Format.RESPONSES,
      streamed: optionalBoolean(body.stream, "stream") ?? false,
      vendorVersion: "",
      vendorBeta: "",
      reasoningEffort: decodeEffort(body),
      leftOut: carried.leftOut,
    },
  };
}

function systemOf(instruction: string): SystemPrompt {
  return {
    $typeName: "gateway.inference.v1.SystemPrompt",
    content: [textBlock(instruction)],
    form: ContentForm.TEXT,
  };
}

/** All members, but for those that the typed fields hold as they came. */
function membersOf({ model, input, instructions, ...members }: JsonObject): JsonObject | undefined {
  const all: JsonObject = {
    ...members,
    // A text as input, and an instruction that is null or blank.
    ...(typeof input === "string" && { input }),
    ...(instructions !== undefined && !isFilled(instructions) && { instructions }),
  };
  for (const _ in all) return all;
  return undefined;
}

function isFilled(value: JsonValue): boolean {
  return typeof value === "string" && value.trim() !== "";
}

/** Reads what an accepted body wants of its answer. */
export function readWishes(body: JsonValue): Wishes {
  const request = isObject(body) ? body : {};
  const tools = Array.isArray(request.tools) ? request.tools : [];
  const items = Array.isArray(request.input) ? request.input : [];
  const lists = toolListsOf(tools, items);
  const reasoning = isObject(request.reasoning) ? request.reasoning : {};
  const { include, instructions, text, metadata } = request;
  const formatted = isObject(text) ? text : {};
  return {
    clientTools: readClientTools(lists.flatMap((list) => list.tools)),
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

// Vendors add efforts. One that is not listed here has no equivalent and is ignored. An item may
// set another one from there on.
function decodeEffort({ reasoning, input }: JsonObject): string | undefined {
  let effort = optionalText(optionalObject(reasoning, "reasoning")?.effort, "reasoning.effort");
  for (const item of Array.isArray(input) ? input : []) {
    const isUpdate = isObject(item) && item.type === "configuration_update";
    if (isUpdate && isObject(item.reasoning) && typeof item.reasoning.effort === "string")
      effort = item.reasoning.effort;
  }
  return effort !== undefined && effortNames.includes(effort) ? effort : undefined;
}

function decodeFormat(value: JsonValue | undefined): OutputConfig | undefined {
  const format = optionalObject(optionalObject(value, "text")?.format, "text.format");
  if (format?.type !== "json_schema") return undefined;
  const schema = objectAt(format.schema, "text.format.schema");
  return create(OutputConfigSchema, { format: { type: "json_schema", schema } });
}
