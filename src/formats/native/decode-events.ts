// The event stream of an answer in the native format → events, in the order of event.proto.
//
// An event keeps the provider's JSON text as its wire form only if its typed form does not hold all
// of it: making and decoding that costs more (125 ns) than encoding the event again (95 ns; Node
// 24, two shared cores, best of five runs of 300,000).

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  type BlockDelta,
  type Event,
  type Failure,
  type MessageDelta,
  MessageDeltaSchema,
  type MessageStart,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { type AnswerSource, type EventDecoder, unreadableAnswer } from "../codec.ts";
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
  progress,
} from "../events.ts";
import {
  isCount,
  isObject,
  isSound,
  mayHoldSurrogates,
  parseAnswerJson,
  readString,
  unknownFields,
} from "../json.ts";
import { jsonDepthMax } from "../json-fault.ts";
import { createSseParser, type SseEvent, type SseParser } from "../sse.ts";
import { runDelta, type TextDeltas, TextRuns } from "../text-run.ts";
import { completeBlock, decodeBlock, readStartContent } from "./decode-block.ts";
import { textFormOf } from "./encode-events.ts";
import { decodeUsage } from "./usage.ts";

/**
 * Decodes the stream of one answer. Its events always follow the order of event.proto: small
 * omissions are repaired, an answer that is out of order or incomplete ends in a `failure`, and
 * no event follows `message_stop` or `failure`. `parser`: of another framing.
 */
export function createEventDecoder(
  acceptsRuns = false,
  source: AnswerSource = {},
  parser: SseParser = createSseParser(acceptsRuns ? new TextRuns(textDeltas) : undefined),
): EventDecoder {
  const order = createOrder();
  const read = (sseEvents: readonly SseEvent[]): Event[] => {
    const events: Event[] = [];
    for (const { event: name, data, run, hasSurrogates = false } of sseEvents) {
      if (run) {
        order.accept(runDelta(run.form.index, run), events);
        continue;
      }
      // Some servers send empty events as keep-alives, and some end with the terminator of chat
      // completions.
      if ((data === "" && name !== "ping") || data === "[DONE]") continue;
      order.accept(
        decodeEvent(name, data, source, hasSurrogates) ??
          failure(unreadableAnswer, "The model provider sent an event that cannot be read."),
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

/** Checks and repairs the order of the events of one answer. */
function createOrder() {
  let started = false;
  /** Index of the block that is open. */
  let open: number | undefined;
  let calledTool = false;
  let sawMessageDelta = false;
  let sawStopReason = false;
  /**
   * A message delta without a stop reason, held back until the next one. If no later delta has a
   * reason, this one gets the assumed reason. Its usage has been reported, so it is dropped where
   * a block follows.
   */
  let held: MessageDelta | undefined;
  let over = false;

  const closeBlock = (events: Event[]): void => {
    if (open === undefined) return;
    events.push(blockStop(open));
    open = undefined;
  };
  const releaseHeld = (events: Event[]): void => {
    if (held) events.push(messageDelta(held));
    held = undefined;
  };
  /** What is held comes between blocks alone. Its usage was reported when it came. */
  const breakOff = (events: Event[]): void => {
    over = true;
    if (open === undefined) releaseHeld(events);
  };
  const fail = (events: Event[], type: string, message: string): void => {
    breakOff(events);
    events.push(failure(type, message));
  };

  // An answer that starts complete has its stop reason and its usage in the start.
  const reportStartContent = (start: MessageStart, events: Event[]): void => {
    const { blocks, stopReason } = readStartContent(start);
    calledTool ||= blocks.some(({ kind }) => kind.case === "toolUse");
    if (stopReason === undefined) return;
    sawStopReason = true;
    events.push(progress({ stopReason, ...(start.usage && { usage: start.usage }) }));
  };

  // Some servers stop a block twice, or start the message twice.
  const repeats = ({ kind }: Event): boolean =>
    (kind.case === "blockStop" && open === undefined) || kind.case === "messageStart";

  /** False if the event is not allowed here. Adds the events that are missing before it. */
  const prepare = ({ kind }: Event, events: Event[]): boolean => {
    switch (kind.case) {
      case "blockDelta":
        return open === kind.value.index;
      case "ping":
      case "other":
        return true;
      case "failure":
        breakOff(events);
        return true;
      case "messageStart":
        started = true;
        return true;
    }
    if (!started) return false;
    switch (kind.case) {
      case "blockStart":
        if (sawMessageDelta) return false;
        held = undefined;
        closeBlock(events);
        open = kind.value.index;
        calledTool ||= kind.value.block?.kind.case === "toolUse";
        return true;
      case "blockStop": {
        const isOpen = open === kind.value.index;
        if (isOpen) open = undefined;
        return isOpen;
      }
      case "messageDelta":
        // Without a reason it is a report on the way: blocks may follow.
        if (!sawStopReason && kind.value.stopReason === undefined) return true;
        closeBlock(events);
        releaseHeld(events);
        sawMessageDelta = true;
        sawStopReason = true;
        return true;
      case "messageStop":
        closeBlock(events);
        if (!sawStopReason) {
          held ??= create(MessageDeltaSchema);
          held.stopReason = assumedStopReason(calledTool);
          releaseHeld(events);
        }
        over = true;
        return true;
      default:
        return false;
    }
  };

  return {
    /** Adds `event` to `events`, with repairs before it. */
    accept(event: Event, events: Event[]): void {
      const { kind } = event;
      if (over || (started && repeats(event))) return;
      if (kind.case === "failure" && started) reportFailureUsage(kind.value, events);
      if (!prepare(event, events))
        fail(events, unreadableAnswer, "The model provider sent events out of order.");
      else if (kind.case === "messageDelta" && !sawStopReason) {
        held = kind.value;
        if (held.usage) events.push(progress({ usage: held.usage }));
      } else {
        events.push(event);
        if (kind.case === "messageStart") reportStartContent(kind.value, events);
      }
    },
    /** Adds the end of the answer to `events`, if it has not ended yet. */
    end(events: Event[]): void {
      if (over) return;
      // After a stop reason, only `message_stop` can be missing.
      if (sawStopReason) {
        over = true;
        events.push(messageStop());
      } else fail(events, "api_error", "The model provider broke off its answer.");
    },
  };
}

/** Adds a report of the usage that came with a failure. */
function reportFailureUsage({ extensions }: Failure, events: Event[]): void {
  if (isObject(extensions?.usage)) events.push(progress({ usage: decodeUsage(extensions.usage) }));
}

/**
 * Decodes the JSON text `given` of an event that is called `name` in the stream. Undefined if it is
 * not an event of this format.
 */
export function decodeEvent(
  name: string,
  given: string,
  source: AnswerSource = {},
  hasSurrogates = mayHoldSurrogates(given),
): Event | undefined {
  // Pings have no content, and the data of some is not JSON.
  if (name === "ping") return ping();
  const parsed = parse(given, hasSurrogates);
  if (!isObject(parsed)) return undefined;
  // Without halves of characters.
  const data = hasSurrogates ? JSON.stringify(parsed) : given;
  const value = typeof parsed.type === "string" || name === "" ? parsed : { ...parsed, type: name };
  switch (value.type) {
    case "content_block_delta":
      return decodeBlockDelta(value, data);
    case "content_block_start":
      return decodeBlockStart(value, data);
    case "content_block_stop":
      if (!isCount(value.index)) return undefined;
      return withRaw(blockStop(value.index), hasMore(value, 2) ? data : undefined);
    case "message_start":
      return isObject(value.message)
        ? decodeMessageStart(value.message, hasMore(value, 2) ? data : undefined, source)
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
      // Some imitations of the vendor's server report an error without a type.
      return isObject(value.error) ? decodeFailure(value) : undefined;
  }
}

/**
 * Keeps the provider's JSON text in `event`. Pass `data` only if the typed form does not hold all
 * of it.
 */
function withRaw(event: Event, data: string | undefined): Event {
  if (data !== undefined) {
    const $typeName = "gateway.inference.v1.WireForm";
    event.wireForm = { $typeName, format: Format.NATIVE, data: Buffer.from(data) };
  }
  return event;
}

function parse(data: string, hasSurrogates: boolean): JsonValue | undefined {
  try {
    const value = parseAnswerJson(data, hasSurrogates);
    // A level takes at least two characters, so only long events can be too deep.
    return data.length <= 2 * jsonDepthMax || isSound(value, false) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** True if `object` has more than `count` members. */
function hasMore(object: JsonObject, count: number): boolean {
  let seen = 0;
  for (const _ in object) if (++seen > count) return true;
  return false;
}

function decodeBlockDelta(value: JsonObject, data: string): Event | undefined {
  const { index, delta } = value;
  if (!isCount(index) || !isObject(delta)) return undefined;
  const kind = decodeDeltaKind(delta);
  const extensions = kind.case !== "other" && hasMore(delta, 2) ? unknownMembers(delta) : undefined;
  return withRaw(blockDelta(index, kind, extensions), hasMore(value, 3) ? data : undefined);
}

const textDeltas: TextDeltas = {
  mark: '"text_delta"',
  firstForm: textFormOf(0),
  read(name, json) {
    const { type, index, delta } = json;
    if ((name !== "" && name !== type) || type !== "content_block_delta" || hasMore(json, 3))
      return;
    if (!isCount(index) || !isObject(delta) || delta.type !== "text_delta" || hasMore(delta, 2))
      return;
    return typeof delta.text === "string" ? { text: delta.text, index } : undefined;
  },
};

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

/** The members of a delta of a known type besides its type and its value. */
function unknownMembers(delta: JsonObject): JsonObject {
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
  const wasComplete = complete === content_block;
  return withRaw(
    blockStart(index, decodeBlock(complete)),
    wasComplete && hasMore(value, 3) ? data : undefined,
  );
}

function decodeMessageStart(
  message: JsonObject,
  data: string | undefined,
  source: AnswerSource,
): Event {
  const { id, type, role, model, content, stop_reason, stop_sequence, usage, ...rest } = message;
  // Some answers start with blocks that are complete already, and with their end.
  if (Array.isArray(content) && content.length > 0) {
    rest.content = content;
    if (typeof stop_reason === "string") rest.stop_reason = stop_reason;
    if (typeof stop_sequence === "string") rest.stop_sequence = stop_sequence;
  }
  const start = messageStart(
    {
      id: typeof id === "string" ? id : "",
      model: typeof model === "string" ? model : "",
      usage: isObject(usage) ? decodeUsage(usage) : undefined,
      extensions: unknownFields(rest),
    },
    source,
  );
  return withRaw(start, data);
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
  if (isObject(value.usage)) rest.usage = value.usage;
  const text = typeof message === "string" ? message : "The model provider reported an error.";
  return failure(typeof type === "string" ? type : "api_error", text, unknownFields(rest));
}

/**
 * The stop reason of an answer whose provider gives none. Clients need one, and run tools only
 * after `tool_use`.
 */
export function assumedStopReason(calledTool: boolean): string {
  return calledTool ? "tool_use" : "end_turn";
}
