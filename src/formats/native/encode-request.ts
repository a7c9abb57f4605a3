// A canonical request → the body for a provider. `decode-request.ts` is the inverse: the request of
// a native client goes out as it came. `fit-request.ts` fits those of the other formats.

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
import type { DialectName } from "../../config/catalog.ts";
import { isOpenai } from "../codec.ts";
import { Fit } from "../fit.ts";
import { foldSystemEntries, hasOnlyInstructions } from "../fold-system.ts";
import { encodeCacheControl, encodeContent, type KeepExtensions } from "./encode-block.ts";
import { fitRequest, fitThinking } from "./fit-request.ts";

/** The settings of a provider that affect the body. */
export type RequestTarget = {
  /** The provider's name of the model. */
  model: string;
  stream: boolean;
  /** Its habits. Default: `generic`. */
  dialect?: DialectName;
  /** True for servers that do not accept system messages inside the conversation. */
  foldSystem?: boolean;
};

/**
 * The body of a request for an answer. It shares values with `received`, so treat it as read-only.
 * Throws `feature_not_offered` for what a client of another format asks for and this one has not.
 */
export function encodeRequest(
  received: GenerateRequest,
  target: RequestTarget,
  fit: Fit = new Fit(),
): JsonObject {
  const keep = keepsExtensions(received);
  const request = fitRequest(received, fit);
  return {
    model: target.model,
    ...(request.maxTokens !== undefined && { max_tokens: request.maxTokens }),
    stream: target.stream,
    ...(request.temperature !== undefined && { temperature: request.temperature }),
    ...(request.topP !== undefined && { top_p: request.topP }),
    ...(request.topK !== undefined && { top_k: request.topK }),
    ...(request.stopSequences.length > 0 && { stop_sequences: request.stopSequences }),
    ...encodePrompt(request, target, keep, fit),
    ...(keep && request.extensions),
  };
}

/** Extensions that providers reject in a request to count. */
const generationOnly = ["metadata", "service_tier", "stop_sequences"];

/** The body of a request to count the input of `request`. */
export function encodeCountRequest(
  received: GenerateRequest,
  target: Omit<RequestTarget, "stream">,
): JsonObject {
  const keep = keepsExtensions(received);
  // What is left out is noted when the request itself is sent.
  const fit = new Fit();
  const request = fitRequest(received, fit);
  const extensions = Object.entries((keep && request.extensions) || {}).filter(
    ([name]) => !generationOnly.includes(name),
  );
  return {
    model: target.model,
    ...encodePrompt(request, target, keep, fit),
    ...Object.fromEntries(extensions),
  };
}

function keepsExtensions(request: GenerateRequest): KeepExtensions {
  return !isOpenai(request.sourceFormat);
}

/** The members that make up the input of the model. */
function encodePrompt(
  request: GenerateRequest,
  target: Omit<RequestTarget, "stream">,
  keep: KeepExtensions,
  fit: Fit,
): JsonObject {
  const messages = encodableMessages(request, target, fit);
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
  { foldSystem, dialect = "generic", model }: Omit<RequestTarget, "stream">,
  fit: Fit,
): readonly Message[] {
  const messages = fitThinking(request.messages, { dialect, model }, fit);
  if (hasOnlyInstructions(request))
    return messages.map((message) => ({ ...message, role: Role.USER }));
  return foldSystem ? foldSystemEntries(messages) : messages;
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
    // Of other formats, `fitRequest` has left what this one knows.
    ...extensions,
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
