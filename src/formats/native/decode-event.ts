// One event of a provider's stream in the native format.
//
// An event does not keep its bytes as `raw` when its typed form holds all of it: making and
// decoding them costs more (125 ns) than writing the event anew (95 ns; Node 24, two shared cores,
// best of five runs of 300,000).

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  type BlockDelta,
  type Event,
  MessageDeltaSchema,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import {
  blockDelta,
  blockStart,
  blockStop,
  failure,
  messageDelta,
  messageStart,
  messageStop,
  otherEvent,
  ping,
} from "../events.ts";
import { isObject, isSound } from "../json.ts";
import { jsonDepthMax } from "../json-fault.ts";
import { decodeBlock } from "./decode-block.ts";
import { isCount, readString, unknownFields } from "./extensions.ts";
import { decodeUsage } from "./usage.ts";

/**
 * `event` with the provider's JSON text `data`, which is given where the typed form does not hold
 * all of it.
 */
function carrying(event: Event, data: string | undefined): Event {
  if (data !== undefined) {
    event.raw = Buffer.from(data);
    event.rawFormat = Format.NATIVE;
  }
  return event;
}

/**
 * The event that the JSON text `data` stands for; `name` is its name in the stream. Undefined when
 * it cannot be read.
 */
export function decodeEvent(name: string, data: string): Event | undefined {
  // Pings say nothing, and the data of some is not JSON.
  if (name === "ping") return ping();
  const parsed = parse(data);
  if (!isObject(parsed)) return undefined;
  const value = typeof parsed.type === "string" || name === "" ? parsed : { ...parsed, type: name };
  switch (value.type) {
    case "content_block_delta":
      return decodeBlockDelta(value, data);
    case "content_block_start":
      return decodeBlockStart(value, data);
    case "content_block_stop":
      if (!isCount(value.index)) return undefined;
      return carrying(blockStop(value.index), hasMore(value, 2) ? data : undefined);
    case "message_start":
      return isObject(value.message)
        ? decodeMessageStart(value.message, hasMore(value, 2) ? data : undefined)
        : undefined;
    case "message_delta":
      return decodeMessageDelta(value);
    case "message_stop":
      return messageStop();
    case "ping":
      return ping();
    case "error":
      return decodeFailure(value);
    default:
      if (typeof value.type === "string") return otherEvent(value);
      // Servers that only imitate the format may report an error without a type.
      return isObject(value.error) ? decodeFailure(value) : undefined;
  }
}

function parse(data: string): JsonValue | undefined {
  try {
    const value: JsonValue = JSON.parse(data);
    // A level takes two characters at least, so that only long events can be too deep.
    return data.length <= 2 * jsonDepthMax || isSound(value, false) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** True when `object` has more than `count` members. */
function hasMore(object: JsonObject, count: number): boolean {
  let seen = 0;
  for (const _ in object) if (++seen > count) return true;
  return false;
}

function decodeBlockDelta(value: JsonObject, data: string): Event | undefined {
  const { index, delta } = value;
  if (!isCount(index) || !isObject(delta)) return undefined;
  const kind = decodeDeltaKind(delta);
  const extensions = kind.case !== "other" && hasMore(delta, 2) ? furtherMembers(delta) : undefined;
  return carrying(blockDelta(index, kind, extensions), hasMore(value, 3) ? data : undefined);
}

function decodeDeltaKind(delta: JsonObject): BlockDelta["kind"] {
  switch (delta.type) {
    case "text_delta":
      if (typeof delta.text === "string") return { case: "text", value: delta.text };
      break;
    case "input_json_delta":
      if (typeof delta.partial_json === "string")
        return { case: "inputJson", value: delta.partial_json };
      break;
    case "thinking_delta":
      if (typeof delta.thinking === "string") return { case: "thinking", value: delta.thinking };
      break;
    case "signature_delta":
      if (typeof delta.signature === "string") return { case: "signature", value: delta.signature };
      break;
  }
  return { case: "other", value: delta };
}

/** What a delta of a listed type has besides its type and its one value. */
function furtherMembers(delta: JsonObject): JsonObject {
  const value = {
    text_delta: "text",
    input_json_delta: "partial_json",
    thinking_delta: "thinking",
  }[String(delta.type)];
  const { type, [value ?? "signature"]: _, ...rest } = delta;
  return rest;
}

function decodeBlockStart(value: JsonObject, data: string): Event | undefined {
  const { index, content_block } = value;
  if (!isCount(index) || !isObject(content_block)) return undefined;
  const complete = completeBlock(content_block);
  const isWhole = complete === content_block;
  return carrying(
    blockStart(index, decodeBlock(complete)),
    isWhole && hasMore(value, 3) ? data : undefined,
  );
}

/**
 * `block` of an answer with the members that clients rely on and that servers which imitate the
 * format leave out.
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

function decodeMessageStart(message: JsonObject, data: string | undefined): Event {
  const { id, type, role, model, content, stop_reason, stop_sequence, usage, ...rest } = message;
  // Some answers begin with blocks that were complete before.
  if (Array.isArray(content) && content.length > 0) rest.content = content;
  const start = messageStart({
    id: typeof id === "string" ? id : "",
    model: typeof model === "string" ? model : "",
    usage: isObject(usage) ? decodeUsage(usage) : undefined,
    extensions: unknownFields(rest),
  });
  return carrying(start, data);
}

function decodeMessageDelta(value: JsonObject): Event {
  const { type, delta, usage, ...rest } = value;
  const decoded = create(MessageDeltaSchema);
  if (isObject(delta)) {
    const { stop_reason, stop_sequence, ...others } = delta;
    if (stop_reason !== null) decoded.stopReason = readString(others, "stop_reason", stop_reason);
    if (stop_sequence !== null)
      decoded.stopSequence = readString(others, "stop_sequence", stop_sequence);
    decoded.deltaExtensions = unknownFields(others);
  }
  if (isObject(usage)) decoded.usage = decodeUsage(usage);
  decoded.extensions = unknownFields(rest);
  return messageDelta(decoded);
}

function decodeFailure(value: JsonObject): Event {
  const { type, message, ...rest } = isObject(value.error) ? value.error : {};
  const text = typeof message === "string" ? message : "The model provider reported an error.";
  return failure(typeof type === "string" ? type : "api_error", text, unknownFields(rest));
}

/**
 * The stop reason of an answer whose provider names none. Clients need one, and run tools on
 * `tool_use` only.
 */
export function assumedStopReason(calledTool: boolean): string {
  return calledTool ? "tool_use" : "end_turn";
}
