// The event stream of an answer in the native format → events, in the order of event.proto.
//
// An event keeps the provider's JSON text as `raw` only if its typed form does not hold all of it:
// making and decoding `raw` costs more (125 ns) than encoding the event again (95 ns; Node 24, two
// shared cores, best of five runs of 300,000).

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  type BlockDelta,
  type Event,
  type MessageDelta,
  MessageDeltaSchema,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { EventDecoder } from "../codec.ts";
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
import { createSseParser, type SseEvent } from "../sse.ts";
import { completeBlock, decodeBlock } from "./decode-block.ts";
import { isCount, readString, unknownFields } from "./fields.ts";
import { decodeUsage } from "./usage.ts";

/**
 * A decoder whose events follow the order of event.proto whatever the provider sends: small
 * omissions are repaired, an answer that makes no sense ends in a `failure`, and nothing comes
 * after `message_stop` or `failure`. An answer that breaks off ends in a `failure`, too.
 */
export function createEventDecoder(): EventDecoder {
  const parser = createSseParser();
  const order = createOrder();
  const read = (parts: readonly SseEvent[]): Event[] => {
    const events: Event[] = [];
    for (const { event: name, data } of parts) {
      // Some servers keep a connection alive with nothing, and some end with the terminator of the
      // other format.
      if ((data === "" && name !== "ping") || data === "[DONE]") continue;
      order.accept(
        decodeEvent(name, data) ??
          failure("api_error", "The model provider sent an event that cannot be read."),
        events,
      );
    }
    return events;
  };
  return {
    push: (bytes) => read(parser.push(bytes)),
    end() {
      const events = read(parser.end());
      order.end(events);
      return events;
    },
  };
}

function createOrder() {
  let started = false;
  let open: number | undefined;
  let calledTool = false;
  let ending = false;
  let stopReasonSeen = false;
  /**
   * A delta without a stop reason. It waits for the next one; if none names the reason, it is given
   * one here.
   */
  let held: MessageDelta | undefined;
  let over = false;

  const closeBlock = (events: Event[]): void => {
    if (open === undefined) return;
    events.push(blockStop(open));
    open = undefined;
  };
  const fail = (events: Event[], message: string): void => {
    over = true;
    letGo(events);
    events.push(failure("api_error", message));
  };
  const letGo = (events: Event[]): void => {
    if (held) events.push(messageDelta(held));
    held = undefined;
  };
  const stop = (events: Event[]): void => {
    over = true;
    events.push(messageStop());
  };

  /** False when the event cannot stand here. What it lacks before itself goes to `events`. */
  const fits = ({ kind }: Event, events: Event[]): boolean => {
    switch (kind.case) {
      case "blockDelta":
        return open === kind.value.index;
      case "ping":
      case "other":
        return true;
      case "failure":
        over = true;
        letGo(events);
        return true;
      case "messageStart":
        if (started) return false;
        started = true;
        return true;
    }
    if (!started) return false;
    switch (kind.case) {
      case "blockStart":
        if (ending) return false;
        closeBlock(events);
        open = kind.value.index;
        calledTool ||= kind.value.block?.kind.case === "toolUse";
        return true;
      case "blockStop": {
        const isOpen = open === kind.value.index;
        open = undefined;
        return isOpen;
      }
      case "messageDelta":
        closeBlock(events);
        letGo(events);
        ending = true;
        stopReasonSeen ||= kind.value.stopReason !== undefined;
        return true;
      case "messageStop":
        closeBlock(events);
        if (!stopReasonSeen) {
          held ??= create(MessageDeltaSchema);
          held.stopReason = assumedStopReason(calledTool);
          letGo(events);
        }
        over = true;
        return true;
      default:
        return false;
    }
  };

  return {
    accept(event: Event, events: Event[]): void {
      // Some servers end a block twice.
      if (over || (open === undefined && started && event.kind.case === "blockStop")) return;
      if (!fits(event, events)) fail(events, "The model provider sent events out of order.");
      else if (event.kind.case === "messageDelta" && !stopReasonSeen) held = event.kind.value;
      else events.push(event);
    },
    end(events: Event[]): void {
      if (over) return;
      // A provider that told why it stopped has said everything.
      if (stopReasonSeen) stop(events);
      else fail(events, "The model provider broke off its answer.");
    },
  };
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
