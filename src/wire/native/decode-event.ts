// One event of a provider's stream in the native format.
//
// Deltas are written as literals instead of with `create`: an answer has hundreds, and on Node 24 a literal takes 30 ns where `create`
// takes 110, next to 270 ns for parsing the JSON (two shared cores, best of five runs of 300,000). For the same reason an event does
// not keep its bytes as `raw` when its typed form holds all of it: making and decoding them costs more (125 ns) than writing the
// event anew (95 ns).

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  type BlockDelta,
  type Event,
  FailureSchema,
  MessageDeltaSchema,
  MessageStartSchema,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { isObject, isSound } from "../json.ts";
import { jsonDepthMax } from "../json-fault.ts";
import { decodeBlock } from "./decode-block.ts";
import { isCount, kept, readString } from "./extensions.ts";
import { decodeUsage } from "./usage.ts";

const noBytes = new Uint8Array(0);

/** An event of this kind. `data` is the provider's JSON text, given where the typed form does not hold all of it. */
export function eventOf(kind: Event["kind"], data?: string): Event {
  const event: Event = { $typeName: "gateway.inference.v1.Event", kind, raw: noBytes, rawFormat: Format.UNSPECIFIED };
  if (data !== undefined) {
    event.raw = Buffer.from(data);
    event.rawFormat = Format.NATIVE;
  }
  return event;
}

/** The event that the JSON text `data` stands for; `name` is its name in the stream. Undefined when it cannot be read. */
export function decodeEvent(name: string, data: string): Event | undefined {
  // Pings say nothing, and some have data that is no JSON.
  if (name === "ping") return eventOf({ case: "ping", value: { $typeName: "gateway.inference.v1.Ping" } });
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
      return eventOf(
        { case: "blockStop", value: { $typeName: "gateway.inference.v1.BlockStop", index: value.index } },
        hasMore(value, 2) ? data : undefined,
      );
    case "message_start":
      return isObject(value.message) ? decodeMessageStart(value.message, hasMore(value, 2) ? data : undefined) : undefined;
    case "message_delta":
      return decodeMessageDelta(value);
    case "message_stop":
      return eventOf({ case: "messageStop", value: { $typeName: "gateway.inference.v1.MessageStop" } });
    case "ping":
      return eventOf({ case: "ping", value: { $typeName: "gateway.inference.v1.Ping" } });
    case "error":
      return decodeFailure(value);
    default:
      if (typeof value.type === "string") return eventOf({ case: "other", value });
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
  const decoded: BlockDelta = { $typeName: "gateway.inference.v1.BlockDelta", index, kind: decodeDeltaKind(delta) };
  if (decoded.kind.case !== "other" && hasMore(delta, 2)) decoded.extensions = furtherMembers(delta);
  return eventOf({ case: "blockDelta", value: decoded }, hasMore(value, 3) ? data : undefined);
}

function decodeDeltaKind(delta: JsonObject): BlockDelta["kind"] {
  switch (delta.type) {
    case "text_delta":
      if (typeof delta.text === "string") return { case: "text", value: delta.text };
      break;
    case "input_json_delta":
      if (typeof delta.partial_json === "string") return { case: "inputJson", value: delta.partial_json };
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
  const value = { text_delta: "text", input_json_delta: "partial_json", thinking_delta: "thinking" }[String(delta.type)];
  const { type, [value ?? "signature"]: _, ...rest } = delta;
  return rest;
}

function decodeBlockStart(value: JsonObject, data: string): Event | undefined {
  const { index, content_block } = value;
  if (!isCount(index) || !isObject(content_block)) return undefined;
  const complete = completeBlock(content_block);
  return eventOf(
    { case: "blockStart", value: { $typeName: "gateway.inference.v1.BlockStart", index, block: decodeBlock(complete) } },
    complete === content_block && hasMore(value, 3) ? data : undefined,
  );
}

/** `block` of an answer with the members that clients rely on and that servers which imitate the format leave out. */
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
  const start = create(MessageStartSchema, {
    id: typeof id === "string" ? id : "",
    model: typeof model === "string" ? model : "",
  });
  if (isObject(usage)) start.usage = decodeUsage(usage);
  // Some answers begin with blocks that were complete before.
  if (Array.isArray(content) && content.length > 0) rest.content = content;
  start.extensions = kept(rest);
  return eventOf({ case: "messageStart", value: start }, data);
}

function decodeMessageDelta(value: JsonObject): Event {
  const { type, delta, usage, ...rest } = value;
  const decoded = create(MessageDeltaSchema);
  if (isObject(delta)) {
    const { stop_reason, stop_sequence, ...others } = delta;
    if (stop_reason !== null) decoded.stopReason = readString(others, "stop_reason", stop_reason);
    if (stop_sequence !== null) decoded.stopSequence = readString(others, "stop_sequence", stop_sequence);
    decoded.deltaExtensions = kept(others);
  }
  if (isObject(usage)) decoded.usage = decodeUsage(usage);
  decoded.extensions = kept(rest);
  return eventOf({ case: "messageDelta", value: decoded });
}

function decodeFailure(value: JsonObject): Event {
  const { type, message, ...rest } = isObject(value.error) ? value.error : {};
  const text = typeof message === "string" ? message : "The model provider reported an error.";
  const failure = create(FailureSchema, { type: typeof type === "string" ? type : "api_error", message: text });
  failure.extensions = kept(rest);
  return eventOf({ case: "failure", value: failure });
}

/** Why an answer ended whose provider does not tell. Clients need a reason, and run tools on `tool_use` only. */
export function assumedStopReason(calledTool: boolean): string {
  return calledTool ? "tool_use" : "end_turn";
}

/** The failure that stands for a provider's answer which cannot be read on. */
export function brokenAnswer(message: string): Event {
  return eventOf({ case: "failure", value: create(FailureSchema, { type: "api_error", message }) });
}
