// A canonical request → the body for a provider with the Responses API. Nothing is stored there,
// and its thinking comes back encrypted, so that any node can continue it. The request of a client
// of this format goes out as it came, but for what the gateway decides.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import {
  Format,
  type Thinking,
  type Tool,
  type ToolChoice,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../base/errors.ts";
import { withoutTags } from "../../base/tags.ts";
import type { DialectName } from "../../config/catalog.ts";
import { encodeEffort } from "../chat/encode-request.ts";
import { neverPassed } from "../chat/members.ts";
import { Fit, leaveOutMembers, verbosityOf } from "../fit.ts";
import { itemsOf, toolListsOf } from "../hosted-tools.ts";
import { isObject } from "../json.ts";
import { answerFormOf, openaiForm, strictOf, wantsJsonObject, withProperties } from "../schemas.ts";
import { shortName } from "../tool-names.ts";
import { fitTurns, textOfOnly } from "../turns.ts";
import { sealedInclude } from "./decode-request.ts";
import { encodeItems } from "./encode-items.ts";

/** The settings of a provider that affect the body. */
export type RequestTarget = {
  /** The provider's name of the model. */
  readonly model: string;
  readonly stream: boolean;
  /** Its habits. Default: `generic`. */
  readonly dialect?: DialectName;
};

/** Members that the gateway sets itself, or that refer to what is stored. */
const ownMembers = new Set([
  "background",
  "conversation",
  "include",
  "input",
  "max_output_tokens",
  "model",
  "previous_response_id",
  "prompt",
  "store",
  "stream",
]);

/**
 * The body for the provider. Throws `feature_not_offered` for content, tools and stop sequences,
 * which have no counterpart in this format. It shares values with `request`, so treat it as
 * read-only.
 */
export function encodeRequest(
  request: GenerateRequest,
  target: RequestTarget,
  fit: Fit = new Fit(),
): JsonObject {
  if (request.stopSequences.length > 0)
    throw notOffered("stop_sequences", "stop_sequences: the provider of this model knows none.");
  const { model, stream, dialect = "generic" } = target;
  const isOwn = request.origin?.format === Format.RESPONSES;
  const fitted = isOwn ? request : fitTurns(request, fit);
  const { extensions = {} } = request;
  const members =
    isOwn && request.extensions ? passed(extensions, fit) : encodeMembers(fitted, fit);
  if (isOwn && request.extensions) addStubs(members, request, fit);
  const include = includeOf(request, isOwn ? extensions.include : undefined);
  const { instructions, input } = encodeItems(fitted, { model, dialect }, fit);
  return {
    ...members,
    ...(instructions !== undefined && { instructions }),
    model,
    // A text stays a text.
    input:
      isOwn && typeof extensions.input === "string" && isOnly(extensions.input, request)
        ? extensions.input
        : (input ?? []),
    ...(request.maxTokens !== undefined && { max_output_tokens: request.maxTokens }),
    ...(include && { include }),
    store: false,
    stream,
  };
}

/** True if the text is the whole conversation. */
function isOnly(text: string, { messages }: GenerateRequest): boolean {
  return textOfOnly(messages) === text;
}

/** The members of a client of this format that its provider gets, with complete schemas. */
function passed(members: JsonObject, fit: Fit): JsonObject {
  const entries = Object.entries(members).flatMap(([name, value]): [string, JsonValue][] => {
    if (ownMembers.has(name)) return [];
    if (neverPassed.has(name)) {
      fit.leaveOut({ where: name, what: name, why: "member" });
      return [];
    }
    if (name === "tools" && Array.isArray(value)) return [[name, value.map(withSchema)]];
    if (name === "metadata" && isObject(value)) {
      const rest = withoutTags(value);
      const isEmpty = Object.keys(rest).length === 0 && Object.keys(value).length > 0;
      return isEmpty ? [] : [[name, rest]];
    }
    return [[name, value]];
  });
  return Object.fromEntries(entries);
}

function withSchema(tool: JsonValue): JsonValue {
  if (!isObject(tool)) return tool;
  if (Array.isArray(tool.tools)) return { ...tool, tools: tool.tools.map(withSchema) };
  if (tool.type !== "function") return tool;
  return { ...tool, parameters: withProperties(tool.parameters) };
}

/** Stubs of the tools that the conversation has called, where a provider needs them. */
function addStubs(members: JsonObject, request: GenerateRequest, fit: Fit): void {
  const hasTools = toolListsOf(members.tools, itemsOf(request.messages)).length > 0;
  if (!hasTools) addTools(members, request, fit);
}

/** What the client asks for, and the encrypted reasoning of a model that reasons. */
function includeOf(request: GenerateRequest, asked: JsonValue | undefined): JsonValue | undefined {
  const effort =
    request.origin?.format === Format.RESPONSES
      ? request.origin.reasoningEffort
      : encodeEffort(request);
  const isThinking = effort === undefined ? isOn(request.thinking) : effort !== "none";
  const list = Array.isArray(asked) ? asked : [];
  // Models that do not reason refuse to encrypt their reasoning.
  if (!isThinking || list.includes(sealedInclude)) return asked;
  return [...list, sealedInclude];
}

/** The members of a request of another format. */
function encodeMembers(request: GenerateRequest, fit: Fit): JsonObject {
  const body: JsonObject = {};
  leaveOutMembers(request, [], fit);
  if (request.topK !== undefined) fit.leaveOut({ where: "top_k", what: "top_k", why: "member" });
  if (request.temperature !== undefined) body.temperature = request.temperature;
  if (request.topP !== undefined) body.top_p = request.topP;
  addTools(body, request, fit);
  const effort = encodeEffort(request);
  const isThinking = effort === undefined ? isOn(request.thinking) : effort !== "none";
  // Clients of the other formats get the text of the thinking without asking for it.
  if (effort !== undefined || isThinking)
    body.reasoning = {
      ...(effort !== undefined && { effort }),
      ...(isThinking && { summary: "auto" }),
    };
  const form = answerFormOf(request);
  const verbosity = verbosityOf(request);
  const text: JsonObject = {
    ...(form && { format: { type: "json_schema", ...openaiForm(form, fit) } }),
    ...(!form && wantsJsonObject(request) && { format: { type: "json_object" } }),
    ...(verbosity !== undefined && { verbosity }),
  };
  if (Object.keys(text).length > 0) body.text = text;
  const moderation = request.extensions?.moderation;
  if (request.origin?.format === Format.CHAT && moderation !== undefined)
    body.moderation = moderation;
  return body;
}

function addTools(body: JsonObject, request: GenerateRequest, fit: Fit): void {
  const tools = request.tools.flatMap((tool, index) => encodeTool(tool, index, fit) ?? []);
  // Providers reject a tool choice without tools.
  if (tools.length === 0) return;
  body.tools = tools;
  const choice = encodeChoice(request.toolChoice);
  if (choice !== undefined) body.tool_choice = choice;
  if (request.toolChoice?.disableParallelToolUse) body.parallel_tool_calls = false;
}

function encodeTool(tool: Tool, index: number, fit: Fit): JsonObject | undefined {
  if (tool.type !== undefined && tool.type !== "custom") {
    // Tool search only saves the model from reading all tools. Here it gets all of them.
    if (tool.type.startsWith("tool_search_tool_")) return undefined;
    const field = `tools[${index}].type`;
    throw notOffered(
      field,
      `${field}: the provider of this model does not know the tool type ${tool.type}.`,
    );
  }
  const parameters = withProperties(tool.inputSchema);
  const asked = tool.extensions?.strict === true;
  return {
    type: "function",
    name: shortName(tool.name),
    ...(tool.description !== undefined && { description: tool.description }),
    parameters,
    // Absent means true here, where the schema allows it. In the other formats it means false.
    strict: strictOf(asked, parameters, `tools[${index}]`, fit).strict ?? false,
  };
}

function encodeChoice(choice: ToolChoice | undefined): JsonObject | string | undefined {
  switch (choice?.type) {
    case "auto":
    case "none":
      return choice.type;
    case "any":
      return "required";
    case "tool":
      return { type: "function", name: shortName(choice.name ?? "") };
    default:
      return undefined;
  }
}

function isOn(thinking: Thinking | undefined): boolean {
  return thinking !== undefined && thinking.type !== "disabled";
}

function notOffered(field: string, message: string): ApiError {
  return new ApiError("feature_not_offered", { field, message });
}
