// A request body in the native format → the canonical request. `encode-request.ts` is the inverse.
// Only the members that the gateway uses are checked; the provider validates the others. The
// messages follow the vendor's wording.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  ContentForm,
  Format,
  type Message,
  type OutputConfig,
  OutputConfigSchema,
  Role,
  type SystemPrompt,
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

import { ApiError } from "../../base/errors.ts";
import { tagsOfMetadata, withoutTags } from "../../base/tags.ts";
import { checkCounts } from "../codec.ts";
import {
  countUpToMax,
  isObject,
  readBoolean,
  readCount,
  readName,
  readObject,
  readString,
  restore,
  type UnknownFields,
  unknownFields,
} from "../json.ts";
import { blockOf, Carried, isOurs, noSealing, type Sealing } from "../packs.ts";
import { decodeContent, isContent, readCacheControl } from "./decode-block.ts";

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
    messages: typedMessages,
    system: isContent(system) ? decodeSystem(system) : undefined,
    maxTokens: countUpToMax(max_tokens),
    temperature: typeof temperature === "number" ? temperature : undefined,
    topP: typeof top_p === "number" ? top_p : undefined,
    topK: readCount(rest, "top_k", top_k),
    stopSequences: readList(rest, "stop_sequences", stop_sequences, (item) =>
      typeof item === "string" ? item : "",
    ),
    tools: readList(rest, "tools", tools, (tool) => decodeTool(isObject(tool) ? tool : {})),
    toolChoice: isObject(tool_choice) ? decodeToolChoice(tool_choice) : undefined,
    thinking: isObject(thinking) ? decodeThinking(thinking) : undefined,
    outputConfig: output && decodeOutputConfig(output),
    cacheControl: readCacheControl(rest, cache_control),
    tags: {},
    // Last: the readers restore to `rest` what they cannot express.
    extensions: unknownFields(rest),
    origin: {
      $typeName: "gateway.inference.v1.Origin",
      format: Format.NATIVE,
      streamed: stream === true,
      vendorVersion: headers.version,
      vendorBeta: headers.beta,
      reasoningEffort: undefined,
      leftOut: carried.leftOut,
    },
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

function decodeSystem(system: string | JsonObject[]): SystemPrompt {
  return { $typeName: "gateway.inference.v1.SystemPrompt", ...decodeContent(system) };
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

/**
 * Most members of one object that the decoder reads: the body, a message, a block, a tool. The
 * schema names at most thirty. The decoder copies the members that it does not name, which takes
 * several times as long as parsing them.
 */
export const membersMax = 100;

/**
 * The version that rejects sampling members with any value. It differs from the others in nothing
 * else.
 */
const versionWithoutSampling = "2026-10-21";

/** A body after `checkRequest`. Members that are not listed here may have any type. */
export type CheckedBody = JsonObject & { model: string; messages: CheckedMessage[] };
export type CheckedMessage = JsonObject & { role: "user" | "assistant" | "system" };

/**
 * Throws `request_too_large` for too many messages, parts or tools, and
 * `invalid_request` for the first fault in the members that the gateway uses. The message
 * begins with the path in the vendor's notation (`messages.1.content`); `field` has it in ours
 * (`messages[1].content`). A request to count needs no `max_tokens`.
 */
function checkRequest(
  body: JsonValue,
  version: string,
  purpose: "generate" | "count",
): asserts body is CheckedBody {
  if (!isObject(body))
    throw new ApiError("invalid_request", { message: "The body must be a JSON object." });
  checkCounts(body);
  checkMembers(body, "body");
  checkModel(body.model);
  checkMessages(body.messages);
  if (purpose === "generate") checkMaxTokens(body);
  checkSampling(body, version);
  optional(body, "stream", isBoolean, "Input should be a valid boolean");
  checkSystem(body.system);
  optional(body, "stop_sequences", isStrings, "Input should be a list of strings");
  checkTools(body.tools);
  for (const name of ["tool_choice", "thinking", "metadata"])
    optional(body, name, isObject, "Input should be an object");
  for (const name of ["tool_choice", "thinking", "output_config", "cache_control"])
    checkMembers(body[name], name);
}

function checkMembers(value: JsonValue | undefined, at: string): void {
  if (!isObject(value)) return;
  let members = 0;
  for (const _ in value) {
    members++;
    if (members > membersMax) throw invalid(at, `at most ${membersMax} members are accepted`);
  }
}

/** The error for the member at `path`, in the vendor's notation. */
function invalid(path: string, problem: string): ApiError {
  return new ApiError("invalid_request", {
    message: `${path}: ${problem}`,
    field: path.replace(/\.(\d+)/g, "[$1]"),
  });
}

function optional(
  body: JsonObject,
  name: string,
  accepts: (value: JsonValue) => boolean,
  problem: string,
): void {
  const value = body[name];
  if (value !== undefined && !accepts(value)) throw invalid(name, problem);
}

const isBoolean = (value: JsonValue): boolean => typeof value === "boolean";
const isStrings = (value: JsonValue): boolean =>
  Array.isArray(value) && value.every((item) => typeof item === "string");
const isFraction = (value: JsonValue): boolean =>
  typeof value === "number" && value >= 0 && value <= 1;

function checkModel(model: JsonValue | undefined): void {
  if (model === undefined) throw invalid("model", "Field required");
  if (typeof model !== "string") throw invalid("model", "Input should be a valid string");
  if (model === "") throw invalid("model", "String should have at least 1 character");
}

function checkMessages(messages: JsonValue | undefined): void {
  if (messages === undefined) throw invalid("messages", "Field required");
  if (!Array.isArray(messages)) throw invalid("messages", "Input should be a valid list");
  if (messages.length === 0) throw invalid("messages", "at least one message is required");
  messages.forEach(checkMessage);
}

function checkMessage(message: JsonValue, index: number): void {
  const at = `messages.${index}`;
  if (!isObject(message)) throw invalid(at, "Input should be an object");
  checkMembers(message, at);
  const { role, content } = message;
  if (role === undefined) throw invalid(`${at}.role`, "Field required");
  if (role !== "user" && role !== "assistant" && role !== "system") {
    throw invalid(`${at}.role`, "Input should be 'user', 'assistant' or 'system'");
  }
  // A system message without content may change the settings of the next turns.
  if (content === undefined && role === "system" && message.output_config !== undefined) return;
  checkContent(content, `${at}.content`);
}

function checkContent(content: JsonValue | undefined, at: string): void {
  if (typeof content === "string") return;
  if (content === undefined) throw invalid(at, "Field required");
  if (!Array.isArray(content))
    throw invalid(at, "Input should be a valid string or a list of content blocks");
  content.forEach((block, index) => {
    if (!isObject(block)) throw invalid(`${at}.${index}`, "Input should be an object");
    if (block.type === undefined) throw invalid(`${at}.${index}.type`, "Field required");
    if (typeof block.type !== "string")
      throw invalid(`${at}.${index}.type`, "Input should be a valid string");
    checkBlockMembers(block, `${at}.${index}`);
  });
}

// The blocks inside a tool result are decoded too, so their members are bounded as well.
function checkBlockMembers(block: JsonObject, at: string): void {
  checkMembers(block, at);
  const { cache_control, source, content } = block;
  if (cache_control !== undefined) checkMembers(cache_control, `${at}.cache_control`);
  if (source !== undefined) checkMembers(source, `${at}.source`);
  if (block.type !== "tool_result" || !Array.isArray(content)) return;
  content.forEach((inner, index) => {
    if (isObject(inner)) checkBlockMembers(inner, `${at}.content.${index}`);
  });
}

function checkMaxTokens(body: JsonObject): void {
  const tokens = body.max_tokens;
  if (tokens === undefined) throw invalid("max_tokens", "Field required");
  if (typeof tokens !== "number" || !Number.isInteger(tokens))
    throw invalid("max_tokens", "Input should be a valid integer");
  // Zero fills the provider's cache and generates nothing, which needs a cache mark.
  if (tokens < 0 || (tokens === 0 && !mentions(body, "cache_control"))) {
    throw invalid("max_tokens", "Input should be greater than or equal to 1");
  }
}

/** True if an object is the value of a member `name` anywhere inside `value`. */
function mentions(value: JsonValue, name: string): boolean {
  if (Array.isArray(value)) return value.some((item) => mentions(item, name));
  if (!isObject(value)) return false;
  if (isObject(value[name])) return true;
  for (const member in value) if (mentions(value[member] ?? null, name)) return true;
  return false;
}

function checkSampling(body: JsonObject, version: string): void {
  if (version === versionWithoutSampling) {
    for (const name of ["temperature", "top_p", "top_k"]) {
      if (body[name] !== undefined) throw invalid(name, `is not accepted with version ${version}`);
    }
    return;
  }
  optional(body, "temperature", isFraction, "Input should be a number from 0 to 1");
  optional(body, "top_p", isFraction, "Input should be a number from 0 to 1");
  optional(
    body,
    "top_k",
    (value) => Number.isInteger(value) && Number(value) >= 0,
    "Input should be an integer of at least 0",
  );
}

function checkSystem(system: JsonValue | undefined): void {
  if (system === undefined || typeof system === "string") return;
  if (!Array.isArray(system))
    throw invalid("system", "Input should be a valid string or a list of text blocks");
  checkContent(system, "system");
}

function checkTools(tools: JsonValue | undefined): void {
  if (tools === undefined) return;
  if (!Array.isArray(tools)) throw invalid("tools", "Input should be a valid list");
  tools.forEach((tool, index) => {
    if (!isObject(tool)) throw invalid(`tools.${index}`, "Input should be an object");
    checkMembers(tool, `tools.${index}`);
    checkMembers(tool.cache_control, `tools.${index}.cache_control`);
    // Tools that run at the provider may have a type instead of a name.
    if (typeof tool.name !== "string" && typeof tool.type !== "string")
      throw invalid(`tools.${index}.name`, "Field required");
  });
}
