// A canonical request → the body for a provider. `decode-request.ts` is the inverse: the request of
// a native client goes out as it came. Those of clients of OpenAI's formats are fitted, as is the
// thinking in a conversation that other providers took part in.

import { create, type JsonObject } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  ContentForm,
  Format,
  type Message,
  type OutputConfig,
  Role,
  type SystemPrompt,
  type Thinking,
  type Tool,
  type ToolChoice,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";

import { ApiError } from "../../base/errors.ts";
import { type DialectName, dialectOf } from "../../config/catalog.ts";
import { foldSystemEntries, hasOnlyInstructions, isOpenai } from "../codec.ts";
import { Fit, leaveOutMembers, reasoningPlaceholder, verbosityOf } from "../fit.ts";
import { leaveOutHosted } from "../hosted-tools.ts";
import { type ReturnTarget, returnOf } from "../returned.ts";
import {
  answerFormOf,
  hasNativeForm,
  nativeForm,
  nativeTool,
  wantsJsonObject,
} from "../schemas.ts";
import { PairedIds, toNativeId } from "../tool-ids.ts";
import { fitTurns, textBlock } from "../turns.ts";
import { encodeCacheControl, encodeContent, type KeepExtensions } from "./encode-block.ts";

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
  return !isOpenai(request.origin?.format);
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

/**
 * The request by the rules of this format; one of a native client as it is. Throws
 * `feature_not_offered` for content that this format has not, and for `moderation`: a block policy
 * that a client asks for is never dropped.
 */
export function fitRequest(request: GenerateRequest, fit: Fit = new Fit()): GenerateRequest {
  if (!isOpenai(request.origin?.format)) return request;
  const { moderation } = request.extensions ?? {};
  if (moderation !== undefined && moderation !== null)
    throw new ApiError("feature_not_offered", {
      field: "moderation",
      message: "moderation: the provider of this model has none.",
    });
  const { temperature, topP, outputConfig } = request;
  leaveOutMembers(request, [], fit);
  if (verbosityOf(request) !== undefined) {
    const where = request.origin?.format === Format.CHAT ? "verbosity" : "text";
    fit.leaveOut({ where, what: "verbosity", why: "member" });
  }
  if (request.origin?.format === Format.RESPONSES) leaveOutHosted(request, fit);
  const fitted = fitTurns(request, fit);
  const form = answerFormOf(request);
  return {
    ...fitted,
    system: wantsJsonObject(request) ? withJsonSentence(fitted.system) : fitted.system,
    messages: withNativeIds(fitted.messages),
    tools: request.tools.map(fitTool),
    // Providers reject a tool choice without tools.
    toolChoice: request.tools.length === 0 ? undefined : request.toolChoice,
    outputConfig:
      form && outputConfig
        ? { ...outputConfig, format: { type: "json_schema", schema: nativeForm(form, fit) } }
        : outputConfig,
    // OpenAI's formats allow up to 2, the models up to 1.
    temperature: temperature === undefined ? undefined : Math.min(temperature, 1),
    // The models reject both together. Clients that send both mean the temperature.
    topP: temperature === undefined ? topP : undefined,
  };
}

/** A tool with a schema of this format; strict if the client asked for it and it may be so. */
function fitTool(tool: Tool): Tool {
  const inputSchema = nativeTool(tool.inputSchema);
  const isStrict = tool.extensions?.strict === true && hasNativeForm(inputSchema);
  const { extensions: _, ...own } = tool;
  return { ...own, inputSchema, ...(isStrict && { extensions: { strict: true } }) };
}

/** This format has no mode in which any JSON object is the answer. */
function withJsonSentence(system: SystemPrompt | undefined): SystemPrompt {
  const before = system?.content ?? [];
  const content = [...before, textBlock("Answer with one JSON object and nothing else.")];
  const form = before.length === 0 ? ContentForm.TEXT : ContentForm.UNSPECIFIED;
  return { $typeName: "gateway.inference.v1.SystemPrompt", content, form };
}

/**
 * Ids in the alphabet of this format, and each of one call only: a later call with the id of
 * another one gets a new id, with its result.
 */
function withNativeIds(messages: readonly Message[]): Message[] {
  const used = new Set<string>();
  /** The number in the latest new id of each. */
  const numbers = new Map<string, number>();
  const pairs = new PairedIds();
  const idOfCall = (id: string): string => {
    const native = toNativeId(id);
    let number = numbers.get(native) ?? 1;
    let own = native;
    while (used.has(own)) own = `${native}_${++number}`;
    numbers.set(native, number);
    used.add(own);
    pairs.addCall(id, own);
    return own;
  };
  return messages.map((message) => ({
    ...message,
    content: message.content.map((block): Block => {
      const { kind } = block;
      if (kind.case === "toolUse") {
        const id = idOfCall(kind.value.id);
        return { ...block, kind: { case: "toolUse", value: { ...kind.value, id } } };
      }
      if (kind.case !== "toolResult") return block;
      const { toolUseId: given } = kind.value;
      const toolUseId = pairs.ofResult(given) ?? toNativeId(given);
      return { ...block, kind: { case: "toolResult", value: { ...kind.value, toolUseId } } };
    }),
  }));
}

/**
 * `messages` without thinking that the provider would refuse: of other formats, without a
 * signature, or signed by another provider, as far as that is known. A message of nothing else is
 * left out. Where the provider needs the thinking of every turn with calls, a text stands in for
 * what is missing.
 */
function fitThinking(
  messages: readonly Message[],
  target: ReturnTarget,
  fit: Fit,
): readonly Message[] {
  const { unsignedThinking = false } = dialectOf(target.dialect);
  return messages.flatMap((message, index) => {
    if (message.role !== Role.ASSISTANT) return [message];
    const where = `messages[${index}]`;
    const isKept = (block: Block) => fateOf(block, target) === "kept";
    for (const block of message.content)
      if (block.attached && isThinking(block) && isKept(block)) fit.carry("back");
    let fitted = message;
    if (!message.content.every(isKept)) {
      const content = keepThinking(message.content, where, target, fit);
      if (content.length === 0) return [];
      fitted = { ...message, content };
    }
    return [unsignedThinking ? withThinking(fitted, where, fit) : fitted];
  });
}

function keepThinking(
  content: readonly Block[],
  where: string,
  target: ReturnTarget,
  fit: Fit,
): Block[] {
  const { unsignedThinking = false } = dialectOf(target.dialect);
  return content.flatMap((block) => {
    const fate = fateOf(block, target);
    if (fate === "kept") return [block];
    const plain = unsignedThinking ? withoutSignature(block) : undefined;
    if (plain) return [plain];
    fit.carry(fate);
    fit.leaveOut({ where, what: "thinking", why: fate });
    return [];
  });
}

function withThinking(message: Message, where: string, fit: Fit): Message {
  const { content } = message;
  const calls = content.flatMap(({ kind }) => (kind.case === "toolUse" ? [kind.value.name] : []));
  const isThere = content.some((block) => isThinking(block) || isUnsigned(block));
  if (calls.length === 0 || isThere) return message;
  const value = { thinking: reasoningPlaceholder(calls, where, fit), signature: "" };
  const block = create(BlockSchema, { kind: { case: "thinking", value } });
  return { ...message, content: [block, ...content] };
}

/** Without a signature it has no typed form. */
function isUnsigned({ kind }: Block): boolean {
  return kind.case === "other" && kind.value.type === "thinking";
}

function isThinking({ kind }: Block): boolean {
  return kind.case === "thinking" || kind.case === "redactedThinking";
}

function fateOf(block: Block, target: ReturnTarget): "kept" | "foreign" | "model" {
  const { kind, attached } = block;
  if (attached && isThinking(block)) {
    const returned = returnOf(attached, Format.NATIVE, target);
    return returned === "back" ? "kept" : returned;
  }
  if (kind.case === "thinking") return kind.value.signature === "" ? "foreign" : "kept";
  return isUnsigned(block) ? "foreign" : "kept";
}

/** The text of a thought for a provider that wants it back without a signature. */
function withoutSignature(block: Block): Block | undefined {
  const { kind } = block;
  if (kind.case === "other") return block;
  if (kind.case !== "thinking" || kind.value.thinking === "") return undefined;
  const value = { ...kind.value, signature: "" };
  return { ...block, kind: { case: "thinking", value } };
}
