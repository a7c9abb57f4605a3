// Content blocks of the native format, in requests and answers alike. A block whose required
// members do not have the expected types becomes `other`, which keeps it whole.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import {
  type Block,
  BlockSchema,
  type CacheControl,
  CacheControlSchema,
  ContentForm,
  type Source,
  SourceSchema,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { MessageStart } from "../../../gen/gateway/inference/v1/event_pb.ts";
import {
  isObject,
  readBoolean,
  readString,
  restore,
  type UnknownFields,
  unknownFields,
} from "../json.ts";

/** The typed form of one block. Never throws: a block that is not recognised becomes `other`. */
export function decodeBlock(block: JsonObject): Block {
  return decodeKnownBlock(block) ?? create(BlockSchema, { kind: { case: "other", value: block } });
}

function decodeKnownBlock(block: JsonObject): Block | undefined {
  switch (block.type) {
    case "text": {
      const { type, text, cache_control, ...rest } = block;
      if (typeof text !== "string") return undefined;
      const value = { $typeName: "gateway.inference.v1.TextBlock", text, refusal: false } as const;
      return blockOf({ case: "text", value }, cache_control, rest);
    }
    case "tool_use": {
      const { type, id, name, input, cache_control, ...rest } = block;
      if (typeof id !== "string" || typeof name !== "string" || !isObject(input)) return undefined;
      const value = {
        $typeName: "gateway.inference.v1.ToolUseBlock",
        id,
        name,
        input,
      } as const;
      return blockOf({ case: "toolUse", value }, cache_control, rest);
    }
    case "tool_result": {
      const { type, tool_use_id, content, is_error, cache_control, ...rest } = block;
      if (typeof tool_use_id !== "string") return undefined;
      const isError = readBoolean(rest, "is_error", is_error);
      const { content: blocks, form } = readContent(rest, content);
      const value = {
        $typeName: "gateway.inference.v1.ToolResultBlock",
        toolUseId: tool_use_id,
        content: blocks,
        form,
        isError,
      } as const;
      return blockOf({ case: "toolResult", value }, cache_control, rest);
    }
    case "thinking": {
      const { type, thinking, signature, cache_control, ...rest } = block;
      if (typeof thinking !== "string" || typeof signature !== "string") return undefined;
      const value = {
        $typeName: "gateway.inference.v1.ThinkingBlock",
        thinking,
        signature,
      } as const;
      return blockOf({ case: "thinking", value }, cache_control, rest);
    }
    case "redacted_thinking": {
      const { type, data, cache_control, ...rest } = block;
      if (typeof data !== "string") return undefined;
      const value = { $typeName: "gateway.inference.v1.RedactedThinkingBlock", data } as const;
      return blockOf({ case: "redactedThinking", value }, cache_control, rest);
    }
    case "image": {
      const { type, source, cache_control, ...rest } = block;
      if (!isObject(source)) return undefined;
      const value = {
        $typeName: "gateway.inference.v1.ImageBlock",
        source: decodeSource(source),
      } as const;
      return blockOf({ case: "image", value }, cache_control, rest);
    }
    case "document": {
      const { type, source, title, cache_control, ...rest } = block;
      if (!isObject(source)) return undefined;
      const value = {
        $typeName: "gateway.inference.v1.DocumentBlock",
        title: readString(rest, "title", title),
        source: decodeSource(source),
      } as const;
      return blockOf({ case: "document", value }, cache_control, rest);
    }
    default:
      return undefined;
  }
}

// Literals: a conversation has hundreds of blocks, and `create` takes several times as long.
function blockOf(
  kind: Block["kind"],
  cacheControl: JsonValue | undefined,
  rest: UnknownFields,
): Block {
  return {
    $typeName: "gateway.inference.v1.Block",
    kind,
    cacheControl: readCacheControl(rest, cacheControl),
    // Last: the readers restore to `rest` what they cannot express.
    extensions: unknownFields(rest),
  };
}

/**
 * The blocks of a list, or a string as one text block. `form` records which of the two it was.
 */
export function decodeContent(content: string | readonly JsonObject[]): {
  content: Block[];
  form: ContentForm;
} {
  if (typeof content !== "string")
    return { content: content.map(decodeBlock), form: ContentForm.UNSPECIFIED };
  const text = {
    $typeName: "gateway.inference.v1.TextBlock",
    text: content,
    refusal: false,
  } as const;
  const block: Block = {
    $typeName: "gateway.inference.v1.Block",
    kind: { case: "text", value: text },
  };
  return { content: [block], form: ContentForm.TEXT };
}

/** True for the two forms of content: a string, or a list of objects. */
export function isContent(value: JsonValue | undefined): value is string | JsonObject[] {
  return typeof value === "string" || (Array.isArray(value) && value.every(isObject));
}

/**
 * The optional `content` of a tool result. A value that is neither a string nor a list of objects
 * is restored to `rest`.
 */
function readContent(
  rest: UnknownFields,
  content: JsonValue | undefined,
): { content: Block[]; form: ContentForm } {
  if (isContent(content)) return decodeContent(content);
  restore(rest, "content", content);
  return { content: [], form: ContentForm.ABSENT };
}

/**
 * The optional `cache_control` of a body, block, tool or message. A value of another type than
 * `ephemeral` is restored to `rest`.
 */
export function readCacheControl(
  rest: UnknownFields,
  value: JsonValue | undefined,
): CacheControl | undefined {
  // The typed form has no `type`: `ephemeral` is the only one.
  if (!isObject(value) || value.type !== "ephemeral") return restore(rest, "cache_control", value);
  const { type, ttl, ...others } = value;
  const lifetime = readString(others, "ttl", ttl);
  const extensions = unknownFields(others);
  return create(CacheControlSchema, {
    ...(lifetime !== undefined && { ttl: lifetime }),
    ...(extensions && { extensions }),
  });
}

function decodeSource(source: JsonObject): Source {
  switch (source.type) {
    case "base64":
    case "text": {
      const { type, media_type, data, ...rest } = source;
      if (typeof media_type !== "string" || typeof data !== "string") break;
      const extensions = unknownFields(rest);
      const kind = { case: source.type, value: { mediaType: media_type, data } };
      return create(SourceSchema, { kind, ...(extensions && { extensions }) });
    }
    case "url": {
      const { type, url, ...rest } = source;
      if (typeof url !== "string") break;
      const extensions = unknownFields(rest);
      return create(SourceSchema, {
        kind: { case: "url", value: url },
        ...(extensions && { extensions }),
      });
    }
  }
  return create(SourceSchema, { kind: { case: "other", value: source } });
}

/**
 * Adds to a block of an answer the members that clients rely on and that some imitations of the
 * vendor's server omit.
 */
export function completeBlock(block: JsonObject): JsonObject {
  switch (block.type) {
    case "text":
      return typeof block.text === "string" ? block : { ...block, text: "" };
    case "thinking": {
      const { thinking, signature } = block;
      if (typeof thinking === "string" && typeof signature === "string") return block;
      return { ...block, thinking: thinking ?? "", signature: signature ?? "" };
    }
    case "tool_use":
      return isObject(block.input) ? block : { ...block, input: {} };
    default:
      return block;
  }
}

/**
 * The blocks and the stop reason in the start of an answer. Most starts have neither; a provider
 * starts complete during programmatic tool calling, and no deltas follow.
 */
export function readStartContent({ extensions }: MessageStart): {
  blocks: Block[];
  stopReason: string | undefined;
} {
  const { content, stop_reason: reason } = extensions ?? {};
  const blocks = Array.isArray(content) ? content.filter(isObject) : [];
  return {
    blocks: blocks.map((block) => decodeBlock(completeBlock(block))),
    stopReason: typeof reason === "string" ? reason : undefined,
  };
}
