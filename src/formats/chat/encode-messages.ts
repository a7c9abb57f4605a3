// The conversation of a canonical request → chat messages. Those of a chat client go out as they
// came. Of other clients, one user turn may become several messages: first its tool results, as
// `tool` messages right after the calls, then the rest.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import {
  type Attached,
  type Block,
  ContentForm,
  type DocumentBlock,
  Format,
  type Message,
  Role,
  type Source,
  type SystemPrompt,
  type ToolResultBlock,
  type ToolUseBlock,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";

import { ApiError } from "../../base/errors.ts";
import { dialectOf } from "../../config/catalog.ts";
import { foldSystemEntries, hasOnlyInstructions } from "../codec.ts";
import type { Fit } from "../fit.ts";
import { isObject } from "../json.ts";
import { isOurs } from "../packs.ts";
import { type ReturnTarget, returnOf, thinkingOf } from "../returned.ts";
import { fromNativeId } from "../tool-ids.ts";
import { shortName } from "../tool-names.ts";
import { isNoArguments } from "./decode-block.ts";
import { encodeCacheMark, textsOf } from "./fields.ts";
import { fitMessages } from "./fit-messages.ts";
import { reasoningDetail } from "./usage-and-endings.ts";

/** The settings of a provider that affect its messages. */
type MessageTarget = ReturnTarget & { readonly cacheMarks: boolean };

/**
 * The messages for a provider; with `cacheMarks`, including `cache_control` members. Throws
 * `feature_not_offered` for content that chat cannot express.
 */
export function encodeMessages(
  request: GenerateRequest,
  target: MessageTarget,
  fit: Fit,
): JsonObject[] {
  const dialect = dialectOf(target.dialect);
  const isOwn = request.origin?.format === Format.CHAT;
  const encoder = new MessageEncoder(target, isOwn, dialect.reasoningNeeded, fit);
  const messages = isOwn ? encoder.own(request) : encoder.foreign(request);
  return fitMessages(messages, dialect, fit);
}

class MessageEncoder {
  readonly #target: MessageTarget;
  /** True for a request of a chat client. */
  readonly #isOwn: boolean;
  /** The member in which the provider needs the reasoning of every turn with calls. */
  readonly #needed: string | undefined;
  readonly #fit: Fit;

  constructor(target: MessageTarget, isOwn: boolean, needed: string | undefined, fit: Fit) {
    this.#target = target;
    this.#isOwn = isOwn;
    this.#needed = needed;
    this.#fit = fit;
  }

  own({ system, messages }: GenerateRequest): JsonObject[] {
    const instruction = system && encodeSystem(system, this.#target.cacheMarks);
    const encoded = messages.flatMap((message, index) => this.#own(message, index));
    return instruction ? [instruction, ...encoded] : encoded;
  }

  foreign(request: GenerateRequest): JsonObject[] {
    const { cacheMarks } = this.#target;
    const messages: JsonObject[] = [];
    const system = request.system && encodeSystem(request.system, cacheMarks);
    if (system) messages.push(system);
    if (hasOnlyInstructions(request)) {
      const last = request.messages.map((message) => encodeSystem(message, cacheMarks));
      return [...messages, ...last.filter((message) => message !== undefined)];
    }
    for (const [index, turn] of foldSystemEntries(request.messages).entries()) {
      // Not a spread: a turn may have more results than a call may have arguments.
      for (const message of this.#turn(turn, index)) messages.push(message);
    }
    return messages;
  }

  /** A message of a chat client, as it came. */
  #own(message: Message, index: number): JsonObject[] {
    const { source, content, role } = message;
    const hasParts = content.every(({ kind }) => partKinds.has(kind.case ?? ""));
    // Content in the form of another format: it is written in this one.
    if (!source && !hasParts) return this.#turn(message, index);
    const around: JsonObject = source ?? { role: roleNames.get(role) ?? "user" };
    const given = "content" in around ? {} : ownContent(message);
    const encoded = { ...around, ...given };
    if (role !== Role.ASSISTANT) return [encoded];
    const kept = withArguments(this.#withoutPacks(encoded, content, index));
    return [this.#withReasoning(kept, content)];
  }

  /** What this gateway sealed is of providers of other formats. */
  #withoutPacks(message: JsonObject, content: readonly Block[], index: number): JsonObject {
    const { reasoning_details: details, ...others } = message;
    if (!Array.isArray(details)) return message;
    const kept = details.filter(
      (entry) => !isObject(entry) || !(isOurs(entry.data) || isOurs(entry.signature)),
    );
    if (kept.length === details.length) return message;
    for (const { attached } of content)
      if (attached && attached.format !== Format.CHAT) this.#leaveOut("foreign", index);
    return kept.length === 0 ? others : { ...others, reasoning_details: kept };
  }

  #leaveOut(why: "foreign" | "model", index: number): void {
    this.#fit.carry(why);
    this.#fit.leaveOut({ where: `messages[${index}]`, what: "thinking", why });
  }

  /** The reasoning of a turn with calls under the name under which the provider needs it. */
  #withReasoning(message: JsonObject, content: readonly Block[]): JsonObject {
    const needed = this.#needed;
    if (needed === undefined || typeof message[needed] === "string") return message;
    if (!Array.isArray(message.tool_calls) || message.tool_calls.length === 0) return message;
    const text = content.map(thinkingOf).join("");
    return text === "" ? message : { ...message, [needed]: text };
  }

  #turn(turn: Message, index: number): JsonObject[] {
    if (turn.role === Role.ASSISTANT) return this.#assistant(turn, index);
    if (turn.role === Role.USER) return encodeUser(turn, this.#target.cacheMarks);
    const system = encodeSystem(turn, this.#target.cacheMarks);
    return system ? [system] : [];
  }

  #assistant(turn: Message, index: number): JsonObject[] {
    const text = turn.content.map(textOf).join("");
    const message: JsonObject = { role: "assistant", content: text === "" ? null : text };
    this.#addMembers(message, turn.attached, index);
    const parts: JsonObject[] = [];
    const calls: JsonObject[] = [];
    const refused = this.#refusedLists(turn);
    for (const block of turn.content) {
      const { kind } = block;
      if (kind.case === "toolUse") calls.push(this.#call(block, kind.value, index));
      else if (kind.case === "thinking" || kind.case === "redactedThinking")
        this.#addThinking(message, parts, block, { index, refused });
    }
    if (text === "" && calls.length === 0) return [];
    if (parts.length > 0)
      message.content = text === "" ? parts : [...parts, { type: "text", text }];
    if (calls.length > 0) message.tool_calls = calls;
    return [message];
  }

  /** The lists of a turn of which an entry is for another model: they go back whole, or not. */
  #refusedLists({ content }: Message): ReadonlySet<string> {
    const refused = new Set<string>();
    for (const { attached } of content)
      if (attached && returnOf(attached, Format.CHAT, this.#target) === "model")
        refused.add(attached.list);
    refused.delete("");
    return refused;
  }

  /** Adds the reasoning of a block where the provider takes it. */
  #addThinking(
    message: JsonObject,
    parts: JsonObject[],
    block: Block,
    { index, refused }: { index: number; refused: ReadonlySet<string> },
  ): void {
    const { kind, attached } = block;
    const text = thinkingOf(block);
    const isRefused = attached !== undefined && refused.has(attached.list);
    const returned = isRefused ? "model" : returnOf(attached, Format.CHAT, this.#target);
    if (attached && returned === "back") {
      this.#fit.carry("back");
      this.#addReturned(message, parts, { attached, text, index });
      return;
    }
    const signature = kind.case === "thinking" ? kind.value.signature : "";
    // A gateway to native models knows their signatures, and a client of this format its
    // provider's.
    const isNative = attached === undefined || attached.format === Format.NATIVE;
    if (signature !== "" && isNative && (this.#target.cacheMarks || this.#isOwn)) {
      addTo(message, "reasoning_details", reasoningDetail(text, signature));
      return;
    }
    if (this.#needed !== undefined && text !== "") append(message, this.#needed, text);
    else this.#leaveOut(returned === "model" ? "model" : "foreign", index);
  }

  /** Adds reasoning in the form in which its provider wrote it. */
  #addReturned(
    message: JsonObject,
    parts: JsonObject[],
    { attached, text, index }: { attached: Attached; text: string; index: number },
  ): void {
    const { list, textMembers, members = {} } = attached;
    if (protectedMembers.has(list) && list !== "content") return;
    const own = textMembers.filter((name) => !protectedMembers.has(name));
    const texts = own.map((name) => [name, text] as const);
    if (list === "content") parts.push({ type: "thinking", ...members, ...partTexts(texts) });
    else if (list !== "") addTo(message, list, { ...members, ...Object.fromEntries(texts) });
    else {
      for (const [name] of texts) append(message, name, text);
      this.#addMembers(message, attached, index);
    }
  }

  /** Members of the message itself that the provider wrote. */
  #addMembers(message: JsonObject, attached: Attached | undefined, index: number): void {
    if (attached?.list !== "") return;
    const returned = returnOf(attached, Format.CHAT, this.#target);
    if (returned !== "back") this.#leaveOut(returned, index);
    else
      for (const [name, value] of Object.entries(attached.members ?? {}))
        if (!protectedMembers.has(name)) message[name] = value;
  }

  #call(block: Block, call: ToolUseBlock, index: number): JsonObject {
    const { attached } = block;
    const returned = returnOf(attached, Format.CHAT, this.#target);
    if (attached && returned !== "back") this.#leaveOut(returned, index);
    else if (attached) this.#fit.carry("back");
    const members = attached && returned === "back" ? attached.members : undefined;
    return {
      ...members,
      id: fromNativeId(call.id),
      type: "function",
      function: { name: shortName(call.name), arguments: JSON.stringify(call.input ?? {}) },
    };
  }
}

/** Members that nothing returned may set. */
const protectedMembers = new Set([
  "role",
  "content",
  "tool_calls",
  "tool_call_id",
  "function_call",
  "__proto__",
]);
/** The message with an empty object in calls without arguments, which providers refuse. */
function withArguments(message: JsonObject): JsonObject {
  const { tool_calls: calls } = message;
  if (!Array.isArray(calls)) return message;
  const isEmpty = (call: JsonValue) =>
    isObject(call) && isObject(call.function) && isNoArguments(call.function.arguments);
  if (!calls.some(isEmpty)) return message;
  const whole = calls.map((call) =>
    isObject(call) && isObject(call.function) && isNoArguments(call.function.arguments)
      ? { ...call, function: { ...call.function, arguments: "{}" } }
      : call,
  );
  return { ...message, tool_calls: whole };
}

const partKinds = new Set(["text", "image", "document", "other"]);
const roleNames = new Map<Role, string>([
  [Role.ASSISTANT, "assistant"],
  [Role.SYSTEM, "system"],
]);

function partTexts(texts: readonly (readonly [name: string, text: string])[]): JsonObject {
  return Object.fromEntries(texts.map(([name, text]) => [name, [{ type: "text", text }]]));
}

function append(message: JsonObject, name: string, text: string): void {
  const before = message[name];
  message[name] = typeof before === "string" ? before + text : text;
}

function addTo(message: JsonObject, list: string, entry: JsonObject): void {
  const before = message[list];
  if (Array.isArray(before)) before.push(entry);
  else message[list] = [entry];
}

/** The `content` of a message whose blocks hold all of it. */
function ownContent({ content, form }: Message): JsonObject {
  const [first] = content;
  const result = first?.kind.case === "toolResult" ? first.kind.value : undefined;
  const blocks = result?.content ?? content.filter(({ kind }) => partKinds.has(kind.case ?? ""));
  switch (result?.form ?? form) {
    case ContentForm.ABSENT:
      return {};
    case ContentForm.TEXT: {
      const [text] = blocks;
      return { content: text ? textOf(text) : "" };
    }
    default:
      return { content: blocks.map(ownPart) };
  }
}

/** A part as it came, from a block that holds all of it. */
function ownPart({ kind, extensions = {} }: Block): JsonObject {
  switch (kind.case) {
    case "text":
      return { type: "text", text: kind.value.text, ...extensions };
    case "image": {
      const { image_url: inner, ...rest } = extensions;
      const url = urlOf(kind.value.source, "image");
      return { type: "image_url", ...rest, image_url: { url, ...(isObject(inner) && inner) } };
    }
    case "document": {
      const { title = "", source } = kind.value;
      const file_data = urlOf(source, "document");
      return { type: "file", file: { filename: title, file_data }, ...extensions };
    }
    case "other":
      return kind.value;
    default:
      return {};
  }
}

/**
 * Prefix of the first instruction of the native command line client. It attributes the call to a
 * customer of the vendor, and changes with every call.
 */
const attribution = "x-anthropic-billing-header:";

/**
 * The blocks of an instruction that have a text. The vendor removes the attribution too: passed on,
 * it would prevent hits of the prefix cache.
 */
export function instructionBlocks({ content }: SystemPrompt | Message): Block[] {
  return content.filter((block) => {
    const text = textOf(block);
    return text !== "" && !text.startsWith(attribution);
  });
}

function encodeSystem(system: SystemPrompt | Message, cacheMarks: boolean): JsonObject | undefined {
  const blocks = instructionBlocks(system);
  if (blocks.length === 0) return undefined;
  if (cacheMarks && blocks.some((block) => block.cacheControl)) {
    return { role: "system", content: blocks.flatMap((block) => encodePart(block, cacheMarks)) };
  }
  // A string, because many servers accept nothing else for this role.
  return { role: "system", content: blocks.map(textOf).join("\n") };
}

/** The text of a text block; empty for all others. */
export function textOf(block: Block): string {
  return block.kind.case === "text" ? block.kind.value.text : "";
}

function encodeUser(turn: Message, cacheMarks: boolean): JsonObject[] {
  const messages: JsonObject[] = [];
  const parts: JsonObject[] = [];
  for (const block of turn.content) {
    if (block.kind.case === "toolResult") {
      const { message, attachments } = encodeResult(block, block.kind.value, cacheMarks);
      messages.push(message);
      // A `tool` message has text only. Images and documents follow in the user message.
      for (const one of attachments) parts.push(...encodePart(one, cacheMarks));
    }
  }
  for (const block of turn.content)
    if (block.kind.case !== "toolResult") parts.push(...encodePart(block, cacheMarks));
  if (parts.length > 0) messages.push({ role: "user", content: plainIfPossible(parts) });
  return messages;
}

function encodeResult(
  block: Block,
  result: ToolResultBlock,
  cacheMarks: boolean,
): { message: JsonObject; attachments: Block[] } {
  const isAttachment = ({ kind }: Block) => kind.case === "image" || kind.case === "document";
  const attachments = result.content.filter(isAttachment);
  const content = textOfBlocks(result.content.filter((one) => !isAttachment(one)));
  const mark = cacheMarks ? encodeCacheMark(block.cacheControl) : {};
  return {
    message: { role: "tool", tool_call_id: fromNativeId(result.toolUseId), content, ...mark },
    attachments,
  };
}

// Every server and chat template accepts the string form.
function plainIfPossible(parts: JsonObject[]): JsonObject[] | string {
  const [only] = parts;
  const isPlain = parts.length === 1 && only?.type === "text" && only.cache_control === undefined;
  return isPlain && typeof only.text === "string" ? only.text : parts;
}

/**
 * One block as the parts of a message; none for a block that chat cannot express. Throws
 * `feature_not_offered` for a document by its URL, which this format does not fetch.
 */
function encodePart(block: Block, cacheMarks: boolean): JsonObject[] {
  if (block.kind.case === "document" && block.kind.value.source?.kind.case === "url")
    throw new ApiError("feature_not_offered", {
      field: "messages",
      message:
        "messages: the provider of this model fetches no document by its URL: send its data.",
    });
  const part = toPart(block);
  if (!part) return [];
  return [
    cacheMarks && block.cacheControl ? { ...part, ...encodeCacheMark(block.cacheControl) } : part,
  ];
}

/** The text of a tool result. */
function textOfBlocks(blocks: readonly Block[]): string {
  return blocks
    .map((block) => toPart(block)?.text)
    .filter((text) => typeof text === "string")
    .join("\n");
}

/**
 * A block as a part of a message; undefined for a block that chat cannot express. Throws
 * `feature_not_offered` for a source that it cannot.
 */
export function toPart(block: Block): JsonObject | undefined {
  const { kind } = block;
  switch (kind.case) {
    case "text":
      return kind.value.text === "" ? undefined : textPart(kind.value.text);
    case "image":
      return {
        type: "image_url",
        image_url: { url: urlOf(kind.value.source, "image"), ...detailOf(block.extensions) },
      };
    case "document":
      return documentPart(kind.value);
    case "other": {
      const text = textOfOther(kind.value);
      return text === "" ? undefined : textPart(text);
    }
    default:
      return undefined;
  }
}

/** How closely a client of one of OpenAI's formats wants its image to be seen. */
function detailOf({ image_url: url, detail }: JsonObject = {}): JsonObject {
  const asked = isObject(url) ? url.detail : detail;
  if (typeof asked !== "string") return {};
  // The Responses format alone has images in their own size.
  return { detail: asked === "original" ? "high" : asked };
}

function textPart(text: string): JsonObject {
  return { type: "text", text };
}

function documentPart({ source, title }: DocumentBlock): JsonObject {
  if (source?.kind.case === "text") return textPart(titled(title, source.kind.value.data));
  if (source?.kind.case === "other") {
    const text = textOfOther(source.kind.value);
    if (text !== "") return textPart(titled(title, text));
  }
  return {
    type: "file",
    file: { filename: title ?? "document.pdf", file_data: urlOf(source, "document") },
  };
}

function titled(title: string | undefined, text: string): string {
  return title === undefined ? text : `${title}\n${text}`;
}

export function urlOf(source: Source | undefined, kind: "image" | "document"): string {
  if (source?.kind.case === "url") return source.kind.value;
  if (source?.kind.case === "base64")
    return `data:${source.kind.value.mediaType};base64,${source.kind.value.data}`;
  throw new ApiError("feature_not_offered", {
    message: `The provider of this model does not accept this source of the ${kind}.`,
  });
}

/**
 * The text in a native block or source that has no typed form: search results, found tools, and
 * documents that consist of blocks.
 */
function textOfOther(other: JsonObject): string {
  if (other.type === "tool_reference" && typeof other.tool_name === "string")
    return `Found the tool ${other.tool_name}.`;
  const { title, source, content } = other;
  const head = [title, source].filter((one) => typeof one === "string");
  const texts = textsIn(content);
  return texts.length === 0 ? "" : [...head, ...texts].join("\n");
}

function textsIn(content: JsonValue | undefined): string[] {
  if (typeof content === "string") return content === "" ? [] : [content];
  return Array.isArray(content) ? textsOf(content) : [];
}
