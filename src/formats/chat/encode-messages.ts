// The conversation of a canonical request → chat messages. One user turn may become several: first
// its tool results, as `tool` messages right after the calls, then the rest.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  type DocumentBlock,
  type Message,
  Role,
  type Source,
  type System,
  type ToolResultBlock,
  type ToolUseBlock,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../base/errors.ts";
import { isOpenai } from "../codec.ts";
import { foldSystemEntries, hasOnlyInstructions } from "../fold-system.ts";
import { encodeCacheMark, textsOf } from "./fields.ts";
import { signedThinking } from "./usage-and-endings.ts";

/**
 * The messages for a provider; with `cacheMarks`, including `cache_control` members. Throws
 * `feature_not_offered` for content that chat cannot express.
 */
export function encodeMessages(request: GenerateRequest, cacheMarks: boolean): JsonObject[] {
  const messages: JsonObject[] = [];
  const system = request.system && encodeSystem(request.system, cacheMarks);
  if (system) messages.push(system);
  if (hasOnlyInstructions(request)) {
    const last = request.messages.map((message) => encodeSystem(message, cacheMarks));
    return [...messages, ...last.filter((message) => message !== undefined)];
  }
  // Chat clients return the thinking that such a provider gave them. That of a native client may be
  // of a native provider, and many providers reject the member: only a gateway to native models,
  // which knows cache marks too, gets it.
  const echoReasoning = isOpenai(request.sourceFormat) || cacheMarks;
  for (const turn of foldSystemEntries(request.messages)) {
    const isAssistant = turn.role === Role.ASSISTANT;
    const encoded = isAssistant
      ? encodeAssistant(turn, echoReasoning)
      : encodeUser(turn, cacheMarks);
    // Not a spread: a turn may have more results than a call may have arguments.
    for (const message of encoded) messages.push(message);
  }
  return messages;
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
export function instructionBlocks({ content }: System | Message): Block[] {
  return content.filter((block) => {
    const text = textOf(block);
    return text !== "" && !text.startsWith(attribution);
  });
}

function encodeSystem(system: System | Message, cacheMarks: boolean): JsonObject | undefined {
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

function encodeAssistant(turn: Message, echoReasoning: boolean): JsonObject[] {
  const calls = turn.content.flatMap((block) =>
    block.kind.case === "toolUse" ? [encodeCall(block.kind.value)] : [],
  );
  const text = turn.content.map(textOf).join("");
  if (text === "" && calls.length === 0) return [];
  const message: JsonObject = { role: "assistant", content: text === "" ? null : text };
  const details = echoReasoning ? signedThinking(turn.content) : [];
  if (details.length > 0) message.reasoning_details = details;
  if (calls.length > 0) message.tool_calls = calls;
  return [message];
}

function encodeCall(call: ToolUseBlock): JsonObject {
  return {
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: JSON.stringify(call.input ?? {}) },
  };
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
    message: { role: "tool", tool_call_id: result.toolUseId, content, ...mark },
    attachments,
  };
}

// Every server and chat template accepts the string form.
function plainIfPossible(parts: JsonObject[]): JsonObject[] | string {
  const [only] = parts;
  const isPlain = parts.length === 1 && only?.type === "text" && only.cache_control === undefined;
  return isPlain && typeof only.text === "string" ? only.text : parts;
}

/** One block as the parts of a message; none for a block that chat cannot express. */
function encodePart(block: Block, cacheMarks: boolean): JsonObject[] {
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
      return { type: "image_url", image_url: { url: urlOf(kind.value.source, "image") } };
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

function urlOf(source: Source | undefined, kind: "image" | "document"): string {
  if (source?.kind.case === "url") return source.kind.value;
  if (source?.kind.case === "base64")
    return `data:${source.kind.value.mediaType};base64,${source.kind.value.data}`;
  throw new ApiError("feature_not_offered", {
    message: `The provider of this model does not accept this source of the ${kind}.`,
  });
}

/**
 * The text in a native block or source that has no typed form: search results, and documents that
 * consist of blocks.
 */
function textOfOther(other: JsonObject): string {
  const { title, source, content } = other;
  const head = [title, source].filter((one) => typeof one === "string");
  const texts = textsIn(content);
  return texts.length === 0 ? "" : [...head, ...texts].join("\n");
}

function textsIn(content: JsonValue | undefined): string[] {
  if (typeof content === "string") return content === "" ? [] : [content];
  return Array.isArray(content) ? textsOf(content) : [];
}
