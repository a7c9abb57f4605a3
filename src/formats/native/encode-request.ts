// A canonical request → the body for a provider. `decode-request.ts` is the inverse.

import type { JsonObject } from "@bufbuild/protobuf";
import {
  ContentForm,
  type Message,
  type OutputConfig,
  Role,
  type Thinking,
  type Tool,
  type ToolChoice,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { isOpenai, isResponsesThinking } from "../codec.ts";
import { foldSystemEntries, hasOnlyInstructions } from "../fold-system.ts";
import { encodeCacheControl, encodeContent, type KeepExtensions } from "./encode-block.ts";

/** The settings of a provider that affect the body. */
export type RequestTarget = {
  /** The provider's name of the model. */
  model: string;
  stream: boolean;
  /** True for servers that do not accept system messages inside the conversation. */
  foldSystem?: boolean;
};

/**
 * The body of a request for an answer. It shares values with `request`, so treat it as read-only.
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

/** Extensions that providers reject in a request to count. */
const generationOnly = ["metadata", "service_tier", "stop_sequences"];

/** The body of a request to count the input of `request`. */
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

function keepsExtensions(request: GenerateRequest): KeepExtensions {
  return !isOpenai(request.sourceFormat);
}

/** The members that make up the input of the model. */
function encodePrompt(
  request: GenerateRequest,
  target: { foldSystem?: boolean },
  keep: KeepExtensions,
): JsonObject {
  const messages = encodableMessages(request, target);
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

function encodableMessages(
  request: GenerateRequest,
  { foldSystem }: { foldSystem?: boolean },
): readonly Message[] {
  const messages = withoutForeignThinking(request.messages);
  if (hasOnlyInstructions(request))
    return messages.map((message) => ({ ...message, role: Role.USER }));
  return foldSystem ? foldSystemEntries(messages) : messages;
}

/** `messages` without the thinking that only a provider of the Responses format can read. */
function withoutForeignThinking(messages: readonly Message[]): readonly Message[] {
  if (!messages.some(({ content }) => content.some(isResponsesThinking))) return messages;
  return messages.flatMap((message) => {
    const content = message.content.filter((block) => !isResponsesThinking(block));
    if (content.length === message.content.length) return [message];
    return content.length === 0 ? [] : [{ ...message, content }];
  });
}

function encodeMessage(message: Message, keep: KeepExtensions): JsonObject {
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

function encodeTool(tool: Tool, keep: KeepExtensions): JsonObject {
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

function encodeToolChoice(choice: ToolChoice, keep: KeepExtensions): JsonObject {
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
    // Not subject to `keep`: a chat client's `thinking` has the native form, with all its members.
    ...extensions,
  };
}

function encodeOutputConfig(config: OutputConfig, keep: KeepExtensions): JsonObject {
  const { effort, format, extensions } = config;
  return {
    ...(effort !== undefined && { effort }),
    ...(format && { format }),
    ...(keep && extensions),
  };
}
