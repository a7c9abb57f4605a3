// Content blocks in the native format.

import type { JsonObject } from "@bufbuild/protobuf";
import { type Block, type CacheControl, ContentForm, type Source } from "../../../gen/gateway/inference/v1/content_pb.ts";

/**
 * Whether `extensions` and `other` are written: those of a request stay in the format that it came in. Answers hold none of another
 * format.
 */
export type Keep = boolean;

/** One block; undefined for a kind that this format does not carry. */
export function encodeBlock(block: Block, keep: Keep): JsonObject | undefined {
  const members = encodeKind(block.kind, keep);
  if (!members) return undefined;
  // `other` is the whole block already.
  if (block.kind.case === "other") return members;
  return {
    ...members,
    ...(block.cacheControl && { cache_control: encodeCacheControl(block.cacheControl, keep) }),
    ...(keep && block.extensions),
  };
}

function encodeKind(kind: Block["kind"], keep: Keep): JsonObject | undefined {
  switch (kind.case) {
    case "text":
      return { type: "text", text: kind.value.text };
    case "toolUse":
      return { type: "tool_use", id: kind.value.id, name: kind.value.name, input: kind.value.input ?? {} };
    case "toolResult": {
      const { toolUseId, content, form, isError } = kind.value;
      return {
        type: "tool_result",
        tool_use_id: toolUseId,
        ...(form !== ContentForm.ABSENT && { content: encodeContent(content, form, keep) }),
        ...(isError !== undefined && { is_error: isError }),
      };
    }
    case "thinking":
      return { type: "thinking", thinking: kind.value.thinking, signature: kind.value.signature };
    case "redactedThinking":
      return { type: "redacted_thinking", data: kind.value.data };
    case "image": {
      const source = encodeSource(kind.value.source, keep);
      return source && { type: "image", source };
    }
    case "document": {
      const source = encodeSource(kind.value.source, keep);
      return source && { type: "document", source, ...(kind.value.title !== undefined && { title: kind.value.title }) };
    }
    case "other":
      return keep ? kind.value : undefined;
    default:
      return undefined;
  }
}

/** Content the way it was written. */
export function encodeContent(content: readonly Block[], form: ContentForm, keep: Keep): string | JsonObject[] {
  const [first] = content;
  if (form === ContentForm.TEXT && first?.kind.case === "text") return first.kind.value.text;
  return encodeBlocks(content, keep);
}

/** A list of blocks, without those that this format does not carry. */
function encodeBlocks(content: readonly Block[], keep: Keep): JsonObject[] {
  return content.map((block) => encodeBlock(block, keep)).filter((block) => block !== undefined);
}

export function encodeCacheControl(control: CacheControl, keep: Keep): JsonObject {
  return { type: "ephemeral", ...(control.ttl !== undefined && { ttl: control.ttl }), ...(keep && control.extensions) };
}

function encodeSource(source: Source | undefined, keep: Keep): JsonObject | undefined {
  switch (source?.kind.case) {
    case "base64":
    case "text": {
      const { mediaType, data } = source.kind.value;
      return { type: source.kind.case, media_type: mediaType, data, ...(keep && source.extensions) };
    }
    case "url":
      return { type: "url", url: source.kind.value, ...(keep && source.extensions) };
    case "other":
      return keep ? source.kind.value : undefined;
    default:
      return undefined;
  }
}
