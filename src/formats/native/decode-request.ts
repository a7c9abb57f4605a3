// A request body in the native format → the canonical request. `encode-request.ts` is the inverse.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  ContentForm,
  Format,
  type Message,
  type OutputConfig,
  OutputConfigSchema,
  Role,
  type System,
  type Thinking,
  ThinkingSchema,
  type Tool,
  type ToolChoice,
  ToolChoiceSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  type CountTokensRequest,
  CountTokensRequestSchema,
  type GenerateRequest,
} from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { tagsOfMetadata, withoutTags } from "../../base/tags.ts";
import { countUpToMax, isObject } from "../json.ts";
import { blockOf, Carried, isOurs, noSealing, type Sealing } from "../packs.ts";
import { type CheckedBody, type CheckedMessage, checkRequest } from "./check-request.ts";
import { decodeContent, isContent, readCacheControl } from "./decode-block.ts";
import {
  readBoolean,
  readCount,
  readName,
  readObject,
  readString,
  restore,
  type UnknownFields,
  unknownFields,
} from "./fields.ts";

/** The headers that are part of a request's meaning. Empty if the client sent none. */
type RequestHeaders = { version: string; beta: string };

/**
 * The canonical request, without loss: of `metadata` it has the tags apart, and `sealing` opens
 * what the client returned. Throws `invalid_request` with the path of the fault.
 */
export function decodeRequest(
  body: JsonValue,
  headers: RequestHeaders,
  sealing: Sealing = noSealing,
): GenerateRequest {
  checkRequest(body, headers.version, "generate");
  const request = decode(body, headers, sealing);
  takeTags(request);
  return request;
}

/** The same for a request to count. Members that do not affect the count are allowed. */
export function decodeCountRequest(
  body: JsonValue,
  headers: RequestHeaders,
  sealing: Sealing = noSealing,
): CountTokensRequest {
  checkRequest(body, headers.version, "count");
  return create(CountTokensRequestSchema, { request: decode(body, headers, sealing) });
}

/** Opens the packs in signatures and redacted thoughts. Changes the messages. */
function openPacks(messages: readonly Message[], carried: Carried): void {
  for (const [index, message] of messages.entries()) {
    if (!message.content.some(({ kind }) => sealedIn(kind) !== undefined)) continue;
    message.content = message.content.flatMap((block, part) => {
      const { kind } = block;
      const sealed = sealedIn(kind);
      if (sealed === undefined) return [block];
      const packed = carried.open(sealed, `messages[${index}].content[${part}]`);
      if (!packed) return [];
      message.attached ??= packed.message;
      const text = kind.case === "thinking" ? kind.value.thinking : "";
      return blockOf(packed, text) ?? [];
    });
  }
  carried.give(messages);
}

function sealedIn(kind: Block["kind"]): string | undefined {
  if (kind.case === "thinking" && isOurs(kind.value.signature)) return kind.value.signature;
  return kind.case === "redactedThinking" && isOurs(kind.value.data) ? kind.value.data : undefined;
}

function takeTags(request: GenerateRequest): void {
  const { extensions } = request;
  if (!isObject(extensions?.metadata)) return;
  const { metadata, ...others } = extensions;
  request.tags = { ...tagsOfMetadata(metadata) };
  const rest = withoutTags(metadata);
  if (Object.keys(rest).length < Object.keys(metadata).length)
    request.extensions = unknownFields(
      Object.keys(rest).length > 0 ? { ...others, metadata: rest } : others,
    );
}

function decode(body: CheckedBody, headers: RequestHeaders, sealing: Sealing): GenerateRequest {
  const {
    model,
    messages,
    system,
    max_tokens,
    stream,
    temperature,
    top_p,
    top_k,
    stop_sequences,
    tools,
    tool_choice,
    thinking,
    output_config,
    cache_control,
    ...rest
  } = body;
  const output = readObject(rest, "output_config", output_config);
  const typedMessages = messages.map(decodeMessage);
  const carried = new Carried(sealing);
  openPacks(typedMessages, carried);
  // All members, so that requests have one shape. It also saves the 2 µs of `create`.
  return {
    $typeName: "gateway.inference.v1.GenerateRequest",
    model,
    sourceFormat: Format.NATIVE,
    messages: typedMessages,
    system: isContent(system) ? decodeSystem(system) : undefined,
    maxTokens: countUpToMax(max_tokens),
    stream: typeof stream === "boolean" ? stream : undefined,
    temperature: typeof temperature === "number" ? temperature : undefined,
    topP: typeof top_p === "number" ? top_p : undefined,
    topK: readCount(rest, "top_k", top_k),
    stopSequences: readList(rest, "stop_sequences", stop_sequences, (item) =>
      typeof item === "string" ? item : "",
    ),
    tools: readList(rest, "tools", tools, (tool) => decodeTool(isObject(tool) ? tool : {})),
    toolChoice: isObject(tool_choice) ? decodeToolChoice(tool_choice) : undefined,
    thinking: isObject(thinking) ? decodeThinking(thinking) : undefined,
    reasoningEffort: undefined,
    outputConfig: output && decodeOutputConfig(output),
    cacheControl: readCacheControl(rest, cache_control),
    vendorVersion: headers.version,
    vendorBeta: headers.beta,
    tags: {},
    leftOut: carried.leftOut,
    // Last: the readers restore to `rest` what they cannot express.
    extensions: unknownFields(rest),
  };
}

/**
 * A list whose items `checkRequest` accepted. An empty one is restored to `rest`, because a
 * repeated field cannot distinguish it from an absent one.
 */
function readList<T>(
  rest: UnknownFields,
  name: string,
  list: JsonValue | undefined,
  decodeItem: (item: JsonValue) => T,
): T[] {
  if (Array.isArray(list) && list.length > 0) return list.map(decodeItem);
  restore(rest, name, list);
  return [];
}

const roles = { user: Role.USER, assistant: Role.ASSISTANT, system: Role.SYSTEM };

const noContent = { content: [], form: ContentForm.ABSENT };

function decodeMessage(message: CheckedMessage): Message {
  const { role, content, ...rest } = message;
  const typed = isContent(content) ? decodeContent(content) : noContent;
  return {
    $typeName: "gateway.inference.v1.Message",
    role: roles[role],
    content: typed.content,
    form: typed.form,
    extensions: unknownFields(rest),
  };
}

function decodeSystem(system: string | JsonObject[]): System {
  return { $typeName: "gateway.inference.v1.System", ...decodeContent(system) };
}

function decodeTool(tool: JsonObject): Tool {
  const { name, type, description, input_schema, cache_control, ...rest } = tool;
  return {
    $typeName: "gateway.inference.v1.Tool",
    name: readName(rest, "name", name),
    type: readString(rest, "type", type),
    description: readString(rest, "description", description),
    inputSchema: readObject(rest, "input_schema", input_schema),
    cacheControl: readCacheControl(rest, cache_control),
    // Last, as above.
    extensions: unknownFields(rest),
  };
}

function decodeToolChoice(choice: JsonObject): ToolChoice {
  const { type, name, disable_parallel_tool_use, ...rest } = choice;
  const decoded = create(ToolChoiceSchema, { type: readName(rest, "type", type) });
  decoded.name = readString(rest, "name", name);
  decoded.disableParallelToolUse = readBoolean(
    rest,
    "disable_parallel_tool_use",
    disable_parallel_tool_use,
  );
  decoded.extensions = unknownFields(rest);
  return decoded;
}

function decodeThinking(thinking: JsonObject): Thinking {
  const { type, budget_tokens, ...rest } = thinking;
  const decoded = create(ThinkingSchema, { type: readName(rest, "type", type) });
  decoded.budgetTokens = readCount(rest, "budget_tokens", budget_tokens);
  decoded.extensions = unknownFields(rest);
  return decoded;
}

function decodeOutputConfig(config: JsonObject): OutputConfig {
  const { effort, format, ...rest } = config;
  const decoded = create(OutputConfigSchema);
  decoded.effort = readString(rest, "effort", effort);
  decoded.format = readObject(rest, "format", format);
  decoded.extensions = unknownFields(rest);
  return decoded;
}
