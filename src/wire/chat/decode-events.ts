// A provider's chunks become events. Chat has no blocks: text, reasoning and the fragments of tool calls arrive in any order, and the
// usage after the end. Here they get blocks, one after the other, and the end is held until the usage is known.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { isObject, parseJsonText } from "../json.ts";
import {
  blockDelta,
  blockStop,
  failure,
  messageDelta,
  messageStart,
  messageStop,
  textStart,
  thinkingStart,
  toolUseStart,
} from "../new-events.ts";
import { createSseParser, type SseEvent } from "../sse.ts";
import { textsOf } from "./fields.ts";
import { readProviderError } from "./provider-errors.ts";
import { readDetails, readReasoning, type Thought } from "./reasoning-details.ts";
import { toStopReason } from "./stop-reasons.ts";
import { argumentsText, CallIds } from "./tool-calls.ts";
import { decodeUsage } from "./usage.ts";

/** A tool call in the order of its first fragment. `cut`: its block ended before its arguments did. */
type Call = { id: string; name: string; arguments: string; state: "waiting" | "open" | "done" | "cut" };

/** What a chunk says of a call. Empty: nothing. */
type Fragment = { id: string; name: string; text: string };

/** Text and thinking by what they are; a tool call by itself. */
type OpenBlock = "text" | "thinking" | Call;

/** Incremental decoder of a provider's stream. `failure` events end it; a stream that breaks off gives one in `end`. */
export function createEventDecoder(): { push(bytes: Uint8Array): Event[]; end(): Event[] } {
  const parser = createSseParser();
  let started = false;
  let ended = false;
  let blocks = 0;
  let open: OpenBlock | undefined;
  let refused = false;
  let hasPlainReasoning = false;
  let finishReason: string | undefined;
  let usage: ReportedUsage | undefined;
  const calls: Call[] = [];
  /** The provider's own numbers of the calls; some count anew, so the latest call of a number is meant. */
  const callByIndex = new Map<number, Call>();
  const ids = new CallIds();

  const closeBlock = (events: Event[]): void => {
    if (open === undefined) return;
    if (typeof open === "object") open.state = isWhole(open) ? "done" : "cut";
    events.push(blockStop(blocks - 1));
    open = undefined;
  };

  const addText = (text: string, events: Event[]): void => {
    if (open !== "text") {
      // It says nothing, and a call could not go on after it.
      if (typeof open === "object" && text.trim() === "" && !isWhole(open)) return;
      closeBlock(events);
      events.push(textStart(blocks++, ""));
      open = "text";
    }
    events.push(blockDelta(blocks - 1, { case: "text", value: text }));
  };

  const openThinking = (events: Event[]): void => {
    if (open === "thinking") return;
    closeBlock(events);
    events.push(thinkingStart(blocks++, "", ""));
    open = "thinking";
  };

  const addThinking = (text: string, events: Event[]): void => {
    openThinking(events);
    events.push(blockDelta(blocks - 1, { case: "thinking", value: text }));
  };

  // Details repeat what the plain member says, so that only their signatures count beside it. One that comes after the block of its
  // thought has ended belongs to nothing any more.
  const addDetail = ({ text, signature }: Thought, events: Event[]): void => {
    if (text !== "" && !hasPlainReasoning) addThinking(text, events);
    if (signature === "" || (hasPlainReasoning && open !== "thinking")) return;
    openThinking(events);
    events.push(blockDelta(blocks - 1, { case: "signature", value: signature }));
    closeBlock(events);
  };

  const openCall = (call: Call, events: Event[]): void => {
    closeBlock(events);
    events.push(toolUseStart(blocks++, ids.take(call.id), call.name));
    if (call.arguments !== "") events.push(blockDelta(blocks - 1, { case: "inputJson", value: call.arguments }));
    call.state = "open";
    open = call;
  };

  const addCall = (fragment: JsonObject, events: Event[]): void => {
    const { id, name, text } = readFragment(fragment);
    const call = callOf(fragment.index, { id, name, text });
    call.id ||= id;
    call.name ||= name;
    call.arguments += text;
    if (call.state === "open") {
      if (text !== "") events.push(blockDelta(blocks - 1, { case: "inputJson", value: text }));
    } else if (call.state === "waiting" && call.name !== "" && mayOpenNext()) {
      openCall(call, events);
    } else if (call.state === "cut" && text !== "") {
      fail(failure("api_error", "The model provider went on with a tool call that it had left."), events);
    }
  };

  const callOf = (index: JsonValue | undefined, fragment: Fragment): Call => {
    const { id } = fragment;
    const known =
      typeof index === "number" ? callByIndex.get(index) : id === "" ? calls.at(-1) : calls.findLast((one) => one.id === id);
    if (known && !beginsAnother(known, fragment)) return known;
    const call: Call = { id, name: "", arguments: "", state: "waiting" };
    calls.push(call);
    if (typeof index === "number") callByIndex.set(index, call);
    return call;
  };

  // Fragments of parallel calls may come mixed. A call whose arguments are whole will get no more of them; while it may, the others
  // wait, since its block cannot be opened again.
  const mayOpenNext = (): boolean => typeof open !== "object" || isWhole(open);

  const finish = (events: Event[]): void => {
    if (ended) return;
    ended = true;
    for (const call of calls) {
      if (call.state !== "waiting") continue;
      if (call.name === "") {
        events.push(failure("api_error", "The model provider sent a tool call without a name."));
        return;
      }
      openCall(call, events);
    }
    closeBlock(events);
    const stopReason = toStopReason(finishReason ?? "stop", { toolCalls: calls.length > 0, refusal: refused });
    events.push(messageDelta({ stopReason, usage }), messageStop());
  };

  const fail = (event: Event, events: Event[]): void => {
    ended = true;
    events.push(event);
  };

  const readDelta = (delta: JsonObject, events: Event[]): void => {
    const reasoning = readReasoning(delta);
    if (reasoning !== "") {
      hasPlainReasoning = true;
      addThinking(reasoning, events);
    }
    if (Array.isArray(delta.reasoning_details)) {
      for (const detail of readDetails(delta.reasoning_details)) addDetail(detail, events);
    }
    const { content, refusal } = delta;
    if (typeof content === "string") {
      if (content !== "") addText(content, events);
    } else if (Array.isArray(content)) {
      for (const text of textsOf(content)) addText(text, events);
    }
    if (typeof refusal === "string" && refusal !== "") {
      refused = true;
      addText(refusal, events);
    }
    if (Array.isArray(delta.tool_calls)) {
      for (const fragment of delta.tool_calls) if (isObject(fragment) && !ended) addCall(fragment, events);
    } else if (isObject(delta.function_call)) {
      addCall({ index: 0, function: delta.function_call }, events);
    }
  };

  const readChunk = (chunk: JsonObject, events: Event[]): void => {
    const error = readProviderError(chunk);
    if (error) {
      fail(error, events);
      return;
    }
    if (!started) {
      started = true;
      events.push(messageStart({ id: "", model: typeof chunk.model === "string" ? chunk.model : "" }));
    }
    const wasFinished = finishReason !== undefined;
    const choice = Array.isArray(chunk.choices) ? chunk.choices.find(isFirstChoice) : undefined;
    if (isObject(choice)) {
      if (isObject(choice.delta)) readDelta(choice.delta, events);
      // Some servers write an empty reason where others write null.
      if (typeof choice.finish_reason === "string" && choice.finish_reason !== "") finishReason = choice.finish_reason;
    }
    if (ended) return;
    if (finishReason === "error") {
      fail(failure("api_error", "The model provider failed amid its answer."), events);
      return;
    }
    const reported = decodeUsage(chunk.usage);
    usage = reported ?? usage;
    // Servers that report with every chunk report once more after the last one.
    if (reported && wasFinished) finish(events);
  };

  const readEvent = ({ event: name, data }: SseEvent, events: Event[]): void => {
    if (ended || data === "") return;
    if (data.startsWith("[DONE]")) {
      if (started) finish(events);
      else fail(brokenOff(), events);
      return;
    }
    const chunk = parseChunk(data);
    if (chunk) readChunk(name === "error" && chunk.error === undefined ? { error: chunk } : chunk, events);
    else fail(failure("api_error", "The model provider sent an event that is not a JSON object."), events);
  };

  return {
    push(bytes) {
      const events: Event[] = [];
      for (const event of parser.push(bytes)) readEvent(event, events);
      return events;
    },
    end() {
      const events: Event[] = [];
      for (const event of parser.end()) readEvent(event, events);
      if (!ended && finishReason !== undefined) finish(events);
      if (!ended) fail(brokenOff(), events);
      return events;
    },
  };
}

/**
 * True when the fragment belongs to another call than the one its number or id means: some servers number all calls 0, and some give
 * them no ids or all the same. A name that comes again amid the arguments goes on with its call.
 */
function beginsAnother(call: Call, { id, name, text }: Fragment): boolean {
  if (name === "") return false;
  if (id !== "" && call.id !== "" && id !== call.id) return true;
  if (call.name === "") return false;
  return name !== call.name || (text !== "" && isWhole(call));
}

function isWhole(call: Call): boolean {
  return call.arguments !== "" && parseJsonText(call.arguments) !== undefined;
}

function brokenOff(): Event {
  return failure("api_error", "The model provider's answer ended before it was complete.");
}

function parseChunk(data: string): JsonObject | undefined {
  try {
    const value: JsonValue = JSON.parse(data);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isFirstChoice(choice: JsonValue): boolean {
  return isObject(choice) && (choice.index === undefined || choice.index === null || choice.index === 0);
}

function readFragment(fragment: JsonObject): Fragment {
  const called = isObject(fragment.function) ? fragment.function : {};
  return {
    id: typeof fragment.id === "string" ? fragment.id : "",
    name: typeof called.name === "string" ? called.name : "",
    text: argumentsText(called.arguments),
  };
}
