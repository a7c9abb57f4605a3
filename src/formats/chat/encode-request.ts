// A canonical request → the body for a provider of chat completions: vLLM, Ollama, llama.cpp,
// OpenRouter and hosted ones. Unless the request or the operator requires more, the body has only
// members that all of them know, because some reject a body with one unknown member.

import type { JsonObject } from "@bufbuild/protobuf";
import type {
  OutputConfig,
  Tool,
  ToolChoice,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../base/errors.ts";
import { chatEffortOfBudget, findEffort } from "../../base/reasoning-effort.ts";
import { encodeMessages } from "./encode-messages.ts";
import { encodeCacheMark } from "./fields.ts";

/** The settings of a provider that affect the body. */
export type RequestTarget = {
  /** The provider's name of the model. */
  readonly model: string;
  readonly stream: boolean;
  /** True for providers that know `cache_control` marks. Default: false. */
  readonly cacheMarks?: boolean;
  /**
   * Name of the member for the output limit. Default: `max_tokens`, which hosted reasoning models
   * reject and all others require.
   */
  readonly maxTokensName?: "max_tokens" | "max_completion_tokens";
  /** True to send no output limit. Default: false. */
  readonly omitMaxTokens?: boolean;
};

/**
 * The body for the provider. Throws `feature_not_offered` for tools and content that have no
 * counterpart in this format.
 */
export function encodeRequest(request: GenerateRequest, target: RequestTarget): JsonObject {
  const body: JsonObject = {
    model: target.model,
    messages: encodeMessages(request, target.cacheMarks ?? false),
  };
  if (request.maxTokens !== undefined && !target.omitMaxTokens)
    body[target.maxTokensName ?? "max_tokens"] = request.maxTokens;
  if (request.temperature !== undefined) body.temperature = request.temperature;
  if (request.topP !== undefined) body.top_p = request.topP;
  if (request.topK !== undefined) body.top_k = request.topK;
  if (request.stopSequences.length > 0) body.stop = request.stopSequences;
  addTools(body, request, target);
  const effort = encodeEffort(request);
  if (effort !== undefined) body.reasoning_effort = effort;
  const format = encodeResponseFormat(request.outputConfig);
  if (format) body.response_format = format;
  body.stream = target.stream;
  if (target.stream) body.stream_options = { include_usage: true };
  return body;
}

function addTools(body: JsonObject, request: GenerateRequest, target: RequestTarget): void {
  const tools = request.tools.flatMap((tool, index) => encodeTool(tool, index, target));
  // Providers reject a tool choice without tools.
  if (tools.length === 0) return;
  body.tools = tools;
  const choice = encodeToolChoice(request.toolChoice);
  if (choice !== undefined) body.tool_choice = choice;
  if (request.toolChoice?.disableParallelToolUse) body.parallel_tool_calls = false;
}

function encodeTool(tool: Tool, index: number, target: RequestTarget): JsonObject[] {
  if (tool.type !== undefined && tool.type !== "custom") {
    // Tool search only saves the model from reading all tools. Here it gets all of them.
    if (tool.type.startsWith("tool_search_tool_")) return [];
    throw new ApiError("feature_not_offered", {
      field: `tools[${index}].type`,
      message: `tools.${index}.type: the provider of this model does not know the tool type ${tool.type}.`,
    });
  }
  const described: JsonObject = { name: tool.name };
  if (tool.description !== undefined) described.description = tool.description;
  described.parameters = tool.inputSchema ?? { type: "object", properties: {} };
  if (tool.extensions?.strict === true) described.strict = true;
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
      return { type: "function", function: { name: choice.name ?? "" } };
    default:
      return undefined;
  }
}

/** The effort that the request asks for, as every chat provider knows it. */
export function encodeEffort(request: GenerateRequest): string | undefined {
  const { reasoningEffort, thinking, outputConfig } = request;
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

function encodeResponseFormat(config: OutputConfig | undefined): JsonObject | undefined {
  const schema = config?.format?.type === "json_schema" ? config.format.schema : undefined;
  if (schema === undefined) return undefined;
  return { type: "json_schema", json_schema: { name: "answer", schema, strict: true } };
}
