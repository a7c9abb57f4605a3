// A canonical request → the body for a provider of chat completions: vLLM, Ollama, llama.cpp,
// OpenRouter and hosted ones. The request of a chat client goes out as it came, but for what its
// provider refuses and what the gateway decides. Of other clients, the body has only members that
// all providers know, unless the request or the operator requires more, because some reject a body
// with one unknown member.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import {
  Format,
  type Tool,
  type ToolChoice,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../base/errors.ts";
import { chatEffortOfBudget, findEffort } from "../../base/reasoning-effort.ts";
import { type Dialect, type DialectName, dialectOf } from "../../config/catalog.ts";
import { isOpenai } from "../codec.ts";
import { Fit, leaveOutMembers, verbosityOf } from "../fit.ts";
import { leaveOutHosted } from "../hosted-tools.ts";
import { isObject } from "../json.ts";
import {
  answerFormOf,
  openaiForm,
  strictOf,
  wantsJsonObject,
  withoutReferences,
  withProperties,
} from "../schemas.ts";
import { shortName } from "../tool-names.ts";
import { fitTurns } from "../turns.ts";
import { encodeMessages } from "./encode-messages.ts";
import { encodeCacheMark } from "./fields.ts";
import { effortMembers, type PassMembers, passes, passMembers } from "./members.ts";

/** The settings of a provider that affect the body. */
export type RequestTarget = {
  /** The provider's name of the model. */
  readonly model: string;
  readonly stream: boolean;
  /** Its habits. Default: `generic`, which takes everything. */
  readonly dialect?: DialectName;
  /** Members that it gets beyond the known ones. Default: none. */
  readonly passMembers?: PassMembers;
  /** True for providers that know `cache_control` marks. Default: false. */
  readonly cacheMarks?: boolean;
  /**
   * Name of the member for the output limit. Default: `max_tokens`, which hosted reasoning models
   * reject and all others require.
   */
  readonly maxTokensName?: "max_tokens" | "max_completion_tokens";
};

/**
 * The body for the provider. Throws `feature_not_offered` for tools and content that have no
 * counterpart in this format. It shares values with `request`, so treat it as read-only.
 */
export function encodeRequest(
  request: GenerateRequest,
  target: RequestTarget,
  fit: Fit = new Fit(),
): JsonObject {
  const { model, stream, dialect = "generic", cacheMarks = false } = target;
  const isOwn = request.origin?.format === Format.CHAT;
  const fitted = isOwn ? request : fitTurns(request, fit);
  const limit = request.maxTokens;
  const options = isObject(request.extensions?.stream_options)
    ? request.extensions.stream_options
    : {};
  return {
    ...(isOwn && request.extensions
      ? ownMembers(request, request.extensions, target, fit)
      : encodeMembers(fitted, target, fit)),
    model,
    messages: encodeMessages(fitted, { model, dialect, cacheMarks }, fit),
    ...(limit !== undefined && { [target.maxTokensName ?? "max_tokens"]: limit }),
    stream,
    ...(stream && { stream_options: { ...(isOwn && options), include_usage: true } }),
  };
}

/** The members of a chat client that its provider gets. */
function ownMembers(
  request: GenerateRequest,
  members: JsonObject,
  target: RequestTarget,
  fit: Fit,
): JsonObject {
  const dialect = dialectOf(target.dialect ?? "generic");
  const passed = passMembers(members, dialect, target.passMembers ?? [], fit);
  const { tools, tool_choice: choice, ...others } = passed;
  const added: JsonObject = {};
  if (Array.isArray(tools))
    added.tools = tools.map((tool) => ownTool(tool, request.tools, target, fit));
  else if (tools !== undefined) added.tools = tools;
  // Stubs of the tools that the conversation has called.
  else if (members.functions === undefined) addTools(added, request, target, fit);
  if (choice !== undefined && added.tool_choice === undefined)
    added.tool_choice = isOwnChoice(choice)
      ? choice
      : (encodeToolChoice(request.toolChoice) ?? choice);
  return { ...others, ...added };
}

/** A tool as it came, with a schema that every provider accepts. */
function ownTool(
  tool: JsonValue,
  typed: readonly Tool[],
  target: RequestTarget,
  fit: Fit,
): JsonValue {
  if (!isObject(tool)) return tool;
  const { function: called } = tool;
  if (!isObject(called)) {
    if (isObject(tool.custom)) return tool;
    // In the form of another format, or of a kind without arguments.
    const known = typed.find(({ name }) => name === tool.name);
    return known ? (encodeTool(known, 0, target, fit)[0] ?? tool) : tool;
  }
  const { refusedMembers = [], noEmptyDescription } = dialectOf(target.dialect ?? "generic");
  const { cache_control: mark, ...unmarked } = tool;
  const { description, ...others } = called;
  const isEmpty = noEmptyDescription === true && description === "";
  return {
    ...(refusedMembers.includes("cache_control") ? unmarked : tool),
    function: {
      ...(isEmpty ? others : called),
      parameters: parametersOf(called.parameters, target),
    },
  };
}

function parametersOf(schema: JsonValue | undefined, { dialect }: RequestTarget): JsonObject {
  const whole = withProperties(schema);
  return dialectOf(dialect ?? "generic").noReferences ? withoutReferences(whole) : whole;
}

/** False for a choice in the form of another format. */
function isOwnChoice(choice: JsonValue): boolean {
  if (!isObject(choice)) return choice !== "any";
  return isObject(choice.function) || isObject(choice.custom) || choice.type === "allowed_tools";
}

/** The members of a request of another format. */
function encodeMembers(request: GenerateRequest, target: RequestTarget, fit: Fit): JsonObject {
  const body: JsonObject = {};
  const dialect = dialectOf(target.dialect ?? "generic");
  leaveOutMembers(request, [], fit);
  if (request.origin?.format === Format.RESPONSES) leaveOutHosted(request, fit);
  const verbosity = verbosityOf(request);
  if (verbosity !== undefined) {
    if (passes("verbosity", dialect, target.passMembers ?? [])) body.verbosity = verbosity;
    else fit.leaveOut({ where: "text", what: "verbosity", why: "member" });
  }
  if (request.temperature !== undefined) body.temperature = request.temperature;
  if (request.topP !== undefined) body.top_p = request.topP;
  if (request.topK !== undefined) {
    if (dialect.isStrict) fit.leaveOut({ where: "top_k", what: "top_k", why: "member" });
    else body.top_k = request.topK;
  }
  if (request.stopSequences.length > 0) body.stop = request.stopSequences;
  addTools(body, request, target, fit);
  Object.assign(body, encodeThinking(request, dialect));
  const form = answerFormOf(request);
  if (form) body.response_format = { type: "json_schema", json_schema: openaiForm(form, fit) };
  else if (wantsJsonObject(request)) body.response_format = { type: "json_object" };
  const moderation = request.extensions?.moderation;
  if (request.origin?.format === Format.RESPONSES && moderation !== undefined)
    body.moderation = moderation;
  return body;
}

function addTools(
  body: JsonObject,
  request: GenerateRequest,
  target: RequestTarget,
  fit: Fit,
): void {
  const tools = request.tools.flatMap((tool, index) => encodeTool(tool, index, target, fit));
  // Providers reject a tool choice without tools.
  if (tools.length === 0) return;
  body.tools = tools;
  const choice = encodeToolChoice(request.toolChoice);
  if (choice !== undefined) body.tool_choice = choice;
  if (request.toolChoice?.disableParallelToolUse) body.parallel_tool_calls = false;
}

function encodeTool(tool: Tool, index: number, target: RequestTarget, fit: Fit): JsonObject[] {
  if (tool.type !== undefined && tool.type !== "custom") {
    // Tool search only saves the model from reading all tools. Here it gets all of them.
    if (tool.type.startsWith("tool_search_tool_")) return [];
    throw new ApiError("feature_not_offered", {
      field: `tools[${index}].type`,
      message: `tools.${index}.type: the provider of this model does not know the tool type ${tool.type}.`,
    });
  }
  const { noEmptyDescription } = dialectOf(target.dialect ?? "generic");
  const described: JsonObject = { name: shortName(tool.name) };
  if (tool.description !== undefined && !(noEmptyDescription && tool.description === ""))
    described.description = tool.description;
  described.parameters = parametersOf(tool.inputSchema, target);
  if (tool.extensions?.strict === true)
    Object.assign(described, strictOf(true, described.parameters, `tools[${index}]`, fit));
  return [
    {
      type: "function",
      function: described,
      ...(target.cacheMarks && encodeCacheMark(tool.cacheControl)),
    },
  ];
}

function encodeToolChoice(choice: ToolChoice | undefined): JsonObject | string | undefined {
  switch (choice?.type) {
    case "auto":
    case "none":
      return choice.type;
    case "any":
      return "required";
    case "tool":
      return { type: "function", function: { name: shortName(choice.name ?? "") } };
    default:
      return undefined;
  }
}

/** The client's names of the tools that providers know by a shorter one; undefined if none is. */
export function shortNames({ origin, tools }: GenerateRequest) {
  // Those of OpenAI's formats are short.
  if (isOpenai(origin?.format) || !tools.some(({ name }) => shortName(name) !== name))
    return undefined;
  return new Map(tools.map(({ name }) => [shortName(name), name]));
}

/** Members for the thinking of a request of another format, in the words of the provider. */
function encodeThinking(request: GenerateRequest, dialect: Dialect): JsonObject {
  const { origin, thinking, outputConfig } = request;
  const reasoningEffort = origin?.reasoningEffort;
  if (reasoningEffort === undefined && thinking?.type === "disabled")
    return { ...dialect.thinkingOff };
  const known = encodeEffort(request);
  if (known === undefined) return {};
  const asked = reasoningEffort ?? outputConfig?.effort ?? known;
  const own = dialect.efforts?.[asked] === undefined ? known : asked;
  return Object.fromEntries(effortMembers(own, dialect));
}

/** The effort that the request asks for, as every chat provider knows it. */
export function encodeEffort(request: GenerateRequest): string | undefined {
  const { origin, thinking, outputConfig } = request;
  const reasoningEffort = origin?.reasoningEffort;
  if (reasoningEffort !== undefined) return toChatEffort(reasoningEffort);
  // Not "none": native clients send "disabled" to models that never think, and those reject any
  // effort.
  if (thinking === undefined || thinking.type === "disabled") return undefined;
  if (outputConfig?.effort !== undefined) return toChatEffort(outputConfig.effort);
  if (thinking.budgetTokens === undefined) return undefined;
  return chatEffortOfBudget(thinking.budgetTokens);
}

function toChatEffort(effort: string): string | undefined {
  return effort === "none" ? "none" : findEffort(effort)?.chat;
}
