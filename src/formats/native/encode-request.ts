// GenerateRequest → the body of a request in the native format. `decode-request.ts` is its inverse.

import type { JsonObject } from "@bufbuild/protobuf";
import {
  ContentForm,
  Format,
  type Message,
  type OutputConfig,
  Role,
  type Thinking,
  type Tool,
  type ToolChoice,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { foldSystemEntries } from "../fold-system.ts";
import { encodeCacheControl, encodeContent, type Keep } from "./encode-block.ts";

/** How a provider is to be asked. */
export type RequestTarget = {
  /** Name of the model as the provider calls it. */
  model: string;
  stream: boolean;
  /** True for servers that know no system entries among the messages. */
  foldSystem?: boolean;
};

/**
 * The body that asks a provider for what `request` says. Values are shared with the request, so
 * treat it as read-only.
 */
export function encodeRequest(request: GenerateRequest, target: RequestTarget): JsonObject {
  const keep = keepsExtensions(request);
  return {
    model: target.model,
    ...(request.maxTokens !== undefined && { max_tokens: request.maxTokens }),
    stream: target.stream,
    ...(request.temperature !== undefined && { temperature: request.temperature }),
    ...(request.topP !== undefined && { top_p: request.topP }),
    ...(request.topK !== undefined && { top_k: request.topK }),
    ...(request.stopSequences.length > 0 && { stop_sequences: request.stopSequences }),
    ...encodePrompt(request, target, keep),
    ...(keep && request.extensions),
  };
}

/** Members that an answer has and a count has no use for; providers refuse them there. */
const generationOnly = ["metadata", "service_tier", "stop_sequences"];

/** The body that asks a provider to count the input of `request`. */
export function encodeCountRequest(
  request: GenerateRequest,
  target: Omit<RequestTarget, "stream">,
): JsonObject {
  const keep = keepsExtensions(request);
  const extensions = Object.entries((keep && request.extensions) || {}).filter(
    ([name]) => !generationOnly.includes(name),
  );
  return {
    model: target.model,
    ...encodePrompt(request, target, keep),
    ...Object.fromEntries(extensions),
  };
}

function keepsExtensions(request: GenerateRequest): Keep {
  return request.sourceFormat !== Format.CHAT;
}

/** Everything that the model reads. */
function encodePrompt(
  request: GenerateRequest,
  target: { foldSystem?: boolean },
  keep: Keep,
): JsonObject {
  const messages = target.foldSystem ? foldSystemEntries(request.messages) : request.messages;
  const { system, tools, toolChoice, thinking, outputConfig, cacheControl } = request;
  return {
    ...(system && { system: encodeContent(system.content, system.form, keep) }),
    messages: messages.map((message) => encodeMessage(message, keep)),
    ...(tools.length > 0 && { tools: tools.map((tool) => encodeTool(tool, keep)) }),
    ...(toolChoice && { tool_choice: encodeToolChoice(toolChoice, keep) }),
    ...(thinking && { thinking: encodeThinking(thinking) }),
    ...(outputConfig && { output_config: encodeOutputConfig(outputConfig, keep) }),
    ...(cacheControl && { cache_control: encodeCacheControl(cacheControl, keep) }),
  };
}

function encodeMessage(message: Message, keep: Keep): JsonObject {
  const role =
    message.role === Role.ASSISTANT
      ? "assistant"
      : message.role === Role.SYSTEM
        ? "system"
        : "user";
  const content =
    message.form === ContentForm.ABSENT
      ? undefined
      : { content: encodeContent(message.content, message.form, keep) };
  return { role, ...content, ...(keep && message.extensions) };
}

function encodeTool(tool: Tool, keep: Keep): JsonObject {
  const { name, type, description, inputSchema, cacheControl, extensions } = tool;
  return {
    ...(type !== undefined && { type }),
    ...(name !== "" && { name }),
    ...(description !== undefined && { description }),
    ...(inputSchema && { input_schema: inputSchema }),
    ...(cacheControl && { cache_control: encodeCacheControl(cacheControl, keep) }),
    ...(keep && extensions),
  };
}

function encodeToolChoice(choice: ToolChoice, keep: Keep): JsonObject {
  const { type, name, disableParallelToolUse, extensions } = choice;
  return {
    ...(type !== "" && { type }),
    ...(name !== undefined && { name }),
    ...(disableParallelToolUse !== undefined && {
      disable_parallel_tool_use: disableParallelToolUse,
    }),
    ...(keep && extensions),
  };
}

function encodeThinking(thinking: Thinking): JsonObject {
  const { type, budgetTokens, extensions } = thinking;
  return {
    ...(type !== "" && { type }),
    ...(budgetTokens !== undefined && { budget_tokens: budgetTokens }),
    // Chat clients that send this object mean the native one, with all its members.
    ...extensions,
  };
}

function encodeOutputConfig(config: OutputConfig, keep: Keep): JsonObject {
  const { effort, format, extensions } = config;
  return {
    ...(effort !== undefined && { effort }),
    ...(format && { format }),
    ...(keep && extensions),
  };
}
