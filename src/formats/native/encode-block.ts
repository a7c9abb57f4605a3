// Content blocks → the native format, whole or split as a stream needs them.

import type { JsonObject } from "@bufbuild/protobuf";
import {
  type Block,
  type CacheControl,
  ContentForm,
  type Source,
} from "../../../gen/gateway/inference/v1/content_pb.ts";
import { isObject } from "../json.ts";

/**
 * Whether to write `extensions` and `other`. They have the format of their source, so those of a
 * chat request are omitted. Answers have none of another format.
 */
export type KeepExtensions = boolean;

/** One block; undefined for a kind that this format cannot express. */
export function encodeBlock(block: Block, keep: KeepExtensions): JsonObject | undefined {
  const members = encodeKind(block.kind, keep);
  if (!members) return undefined;
  // `other` has all members of its block.
  if (block.kind.case === "other") return members;
  return {
    ...members,
    ...(block.cacheControl && { cache_control: encodeCacheControl(block.cacheControl, keep) }),
    ...(keep && block.extensions),
  };
}

function encodeKind(kind: Block["kind"], keep: KeepExtensions): JsonObject | undefined {
  switch (kind.case) {
    case "text":
      return { type: "text", text: kind.value.text };
    case "toolUse":
      return {
        type: "tool_use",
        id: kind.value.id,
        name: kind.value.name,
        input: kind.value.input ?? {},
      };
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
      return (
        source && {
          type: "document",
          source,
          ...(kind.value.title !== undefined && { title: kind.value.title }),
        }
      );
    }
    case "other":
      return keep ? kind.value : undefined;
    default:
      return undefined;
  }
}

/** Content in the form in which it was received: a string or a list. */
export function encodeContent(
  content: readonly Block[],
  form: ContentForm,
  keep: KeepExtensions,
): string | JsonObject[] {
  const [first] = content;
  if (form === ContentForm.TEXT && first?.kind.case === "text") return first.kind.value.text;
  return encodeBlocks(content, keep);
}

/** A list of blocks, without those that this format cannot express. */
function encodeBlocks(content: readonly Block[], keep: KeepExtensions): JsonObject[] {
  return content.map((block) => encodeBlock(block, keep)).filter((block) => block !== undefined);
}

export function encodeCacheControl(control: CacheControl, keep: KeepExtensions): JsonObject {
  return {
    type: "ephemeral",
    ...(control.ttl !== undefined && { ttl: control.ttl }),
    ...(keep && control.extensions),
  };
}

function encodeSource(source: Source | undefined, keep: KeepExtensions): JsonObject | undefined {
  switch (source?.kind.case) {
    case "base64":
    case "text": {
      const { mediaType, data } = source.kind.value;
      return {
        type: source.kind.case,
        media_type: mediaType,
        data,
        ...(keep && source.extensions),
      };
    }
    case "url":
      return { type: "url", url: source.kind.value, ...(keep && source.extensions) };
    case "other":
      return keep ? source.kind.value : undefined;
    default:
      return undefined;
  }
}

/** A block of an answer as a stream sends it: empty at first, because clients append to it. */
type SplitBlock = {
  /** The block without its content; undefined for a kind that this format cannot express. */
  start: JsonObject | undefined;
  /** Deltas to send right after the start. */
  deltas: JsonObject[];
  /** A delta to send before the end of the block, unless the provider sends such deltas itself. */
  late: { kind: "inputJson" | "signature"; delta: JsonObject } | undefined;
};

/** Splits `block`. Content that has no deltas in this format stays in `start`. */
export function splitBlock(block: Block): SplitBlock {
  const whole = encodeBlock(block, true);
  const split: SplitBlock = { start: whole, deltas: [], late: undefined };
  if (!whole) return split;
  switch (whole.type) {
    case "text":
      if (typeof whole.text === "string" && whole.text !== "") {
        split.start = { ...whole, text: "" };
        split.deltas.push({ type: "text_delta", text: whole.text });
      }
      if (Array.isArray(whole.citations) && whole.citations.length > 0) {
        split.start = { ...split.start, citations: [] };
        split.deltas.push(
          ...whole.citations.map((citation) => ({ type: "citations_delta", citation })),
        );
      }
      return split;
    case "thinking":
      split.start = { ...whole, thinking: "", signature: "" };
      if (whole.thinking) split.deltas.push({ type: "thinking_delta", thinking: whole.thinking });
      if (whole.signature) {
        split.late = {
          kind: "signature",
          delta: { type: "signature_delta", signature: whole.signature },
        };
      }
      return split;
    case "tool_use":
    case "server_tool_use":
    case "mcp_tool_use":
      if (isObject(whole.input) && Object.keys(whole.input).length > 0) {
        split.start = { ...whole, input: {} };
        const delta = { type: "input_json_delta", partial_json: JSON.stringify(whole.input) };
        split.late = { kind: "inputJson", delta };
      }
      return split;
    case "compaction":
      if (whole.content) {
        const { type, ...content } = whole;
        split.start = { type, content: null };
        split.deltas.push({ type: "compaction_delta", ...content });
      }
      return split;
    default:
      return split;
  }
}
