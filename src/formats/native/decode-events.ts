// A provider's event stream in the native format → Events in their legal order.

import { create } from "@bufbuild/protobuf";
import {
  type Event,
  type MessageDelta,
  MessageDeltaSchema,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { EventDecoder } from "../codec.ts";
import { blockStop, failure, messageDelta, messageStop } from "../events.ts";
import { createSseParser, type SseEvent } from "../sse.ts";
import { assumedStopReason, decodeEvent } from "./decode-event.ts";

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
