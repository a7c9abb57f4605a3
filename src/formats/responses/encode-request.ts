// A canonical request → the body for a provider with the Responses API. Nothing is stored there,
// and its thinking comes back encrypted, so that any node can continue it.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import {
  Format,
  type OutputConfig,
  type Thinking,
  type Tool,
  type ToolChoice,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../base/errors.ts";
import { encodeEffort } from "../chat/encode-request.ts";
import { isObject } from "../json.ts";
import { encodeItems, namesOf } from "./encode-items.ts";
import { sealedInclude } from "./sealed.ts";

/** The settings of a provider that affect the body. */
export type RequestTarget = {
  /** The provider's name of the model. */
  readonly model: string;
  readonly stream: boolean;
  /** True to send no output limit. Default: false. */
  readonly omitMaxTokens?: boolean;
};

/** Members of a client of this format that a provider of this format gets as they are. */
const passed = ["metadata", "prompt_cache_key", "safety_identifier", "user"];

/**
 * The body for the provider. Throws `feature_not_offered` for content, tools and stop sequences,
 * which have no counterpart in this format.
 */
export function encodeRequest(request: GenerateRequest, target: RequestTarget): JsonObject {
  if (request.stopSequences.length > 0)
    throw notOffered("stop_sequences", "stop_sequences: the provider of this model knows none.");
  const isOwn = request.sourceFormat === Format.RESPONSES;
  const kept = (isOwn && request.extensions) || {};
  const body: JsonObject = { model: target.model, ...encodeItems(request) };
  if (request.maxTokens !== undefined && !target.omitMaxTokens)
    body.max_output_tokens = request.maxTokens;
  if (request.temperature !== undefined) body.temperature = request.temperature;
  if (request.topP !== undefined) body.top_p = request.topP;
  addTools(body, request, isOwn);
  const effort = isOwn ? request.reasoningEffort : encodeEffort(request);
  const isThinking = effort === undefined ? isOn(request.thinking) : effort !== "none";
  // Clients of the other formats get the text of the thinking without asking for it.
  const summary = isOwn ? kept.summary : isThinking ? "auto" : undefined;
  if (effort !== undefined || summary !== undefined)
    body.reasoning = {
      ...(effort !== undefined && { effort }),
      ...(summary !== undefined && { summary }),
    };
  const text = encodeText(request.outputConfig, kept, isOwn);
  if (text) body.text = text;
  const isAsked = Array.isArray(kept.include) && kept.include.includes(sealedInclude);
  // Models that do not reason refuse to encrypt their reasoning.
  if (isAsked || isThinking) body.include = [sealedInclude];
  for (const name of passed) if (kept[name] !== undefined) body[name] = kept[name];
  body.store = false;
  body.stream = target.stream;
  return body;
}

function addTools(body: JsonObject, request: GenerateRequest, isOwn: boolean): void {
  const tools: JsonObject[] = [];
  /** The namespace that the last tool belongs to, and its tools. */
  let group: { name: string; tools: JsonValue[] } | undefined;
  for (const [index, tool] of request.tools.entries()) {
    const encoded = encodeTool(tool, index, isOwn);
    if (!encoded) continue;
    const { namespace, about } = (isOwn && tool.extensions) || {};
    if (typeof namespace !== "string") {
      group = undefined;
      tools.push(encoded);
      continue;
    }
    if (group?.name !== namespace) {
      group = { name: namespace, tools: [] };
      const described = about === undefined ? {} : { description: about };
      tools.push({ type: "namespace", name: namespace, ...described, tools: group.tools });
    }
    group.tools.push(encoded);
  }
  // Providers reject a tool choice without tools.
  if (tools.length === 0) return;
  body.tools = tools;
  const choice = encodeChoice(request, isOwn);
  if (choice !== undefined) body.tool_choice = choice;
  if (request.toolChoice?.disableParallelToolUse) body.parallel_tool_calls = false;
}

function encodeTool(tool: Tool, index: number, isOwn: boolean): JsonObject | undefined {
  if (tool.type !== undefined && tool.type !== "custom") {
    // Tool search only saves the model from reading all tools. Here it gets all of them.
    if (tool.type.startsWith("tool_search_tool_")) return undefined;
    const field = `tools[${index}].type`;
    throw notOffered(
      field,
      `${field}: the provider of this model does not know the tool type ${tool.type}.`,
    );
  }
  const { name, namespace } = isOwn ? namesOf(tool, tool.name) : { name: tool.name };
  const { custom, strict, description: own } = tool.extensions ?? {};
  if (isOwn && isObject(custom)) return { type: "custom", name, ...custom };
  const description = namespace === undefined ? tool.description : own;
  return {
    type: "function",
    name,
    ...(description !== undefined && { description }),
    parameters: tool.inputSchema ?? { type: "object", properties: {} },
    // Absent means true here, where the schema allows it. In the other formats it means false.
    ...(typeof strict === "boolean" ? { strict } : !isOwn && { strict: false }),
  };
}

function encodeChoice(
  { toolChoice, tools }: GenerateRequest,
  isOwn: boolean,
): JsonObject | string | undefined {
  switch (toolChoice?.type) {
    case "auto":
    case "none":
      return toolChoice.type;
    case "any":
      return "required";
    case "tool":
      return namedChoice(toolChoice, tools, isOwn);
    default:
      return undefined;
  }
}

function namedChoice({ name = "" }: ToolChoice, tools: readonly Tool[], isOwn: boolean) {
  const tool = isOwn ? tools.find((one) => one.name === name) : undefined;
  const type = isObject(tool?.extensions?.custom) ? "custom" : "function";
  return { type, ...(tool ? namesOf(tool, name) : { name }) };
}

function isOn(thinking: Thinking | undefined): boolean {
  return thinking !== undefined && thinking.type !== "disabled";
}

function encodeText(
  config: OutputConfig | undefined,
  kept: JsonObject,
  isOwn: boolean,
): JsonObject | undefined {
  const schema = config?.format?.type === "json_schema" ? config.format.schema : undefined;
  const named = isOwn ? config?.extensions : { name: "answer", strict: true };
  const format = schema === undefined ? kept.format : { type: "json_schema", ...named, schema };
  const { verbosity } = kept;
  if (format === undefined && verbosity === undefined) return undefined;
  return { ...(format !== undefined && { format }), ...(verbosity !== undefined && { verbosity }) };
}

function notOffered(field: string, message: string): ApiError {
  return new ApiError("feature_not_offered", { field, message });
}
