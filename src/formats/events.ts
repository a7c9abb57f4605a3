// Constructors of events, for the decoders of both formats. They use object literals, because
// `create` walks the members of a message and an answer has hundreds of events: a literal takes
// 30 ns, `create` 110 ns, and parsing the JSON of a delta 270 ns (Node 24, two shared cores, best
// of five runs of 300,000).

import type { JsonObject } from "@bufbuild/protobuf";
import type { Attached, Block, TextBlock } from "../../gen/gateway/inference/v1/content_pb.ts";
import type {
  BlockDelta,
  Event,
  Failure,
  MessageDelta,
  MessageStart,
  ReportedUsage,
} from "../../gen/gateway/inference/v1/event_pb.ts";

import type { AnswerSource } from "./codec.ts";
import { attachedOf } from "./packs.ts";

/** An event of any kind. */
export function newEvent(kind: Event["kind"]): Event {
  return {
    $typeName: "gateway.inference.v1.Event",
    kind,
    wireForm: undefined,
  };
}

/** `model` is the provider's name of the model. With an empty `id`, the listener makes one. */
export function messageStart(
  start: Omit<MessageStart, "$typeName" | "attached" | "leftOut">,
  { writer, leftOut = [] }: AnswerSource = {},
): Event {
  const value: MessageStart = {
    $typeName: "gateway.inference.v1.MessageStart",
    ...start,
    leftOut: [...leftOut],
  };
  if (writer) value.attached = attachedOf(writer, {});
  return newEvent({ case: "messageStart", value });
}

export function blockStart(index: number, block: Block): Event {
  return newEvent({
    case: "blockStart",
    value: { $typeName: "gateway.inference.v1.BlockStart", index, block },
  });
}

function newBlock(kind: Block["kind"], attached?: Attached): Block {
  const block: Block = { $typeName: "gateway.inference.v1.Block", kind };
  if (attached) block.attached = attached;
  return block;
}

export function textStart(index: number, text: string, phase?: string, refusal = false): Event {
  const value: TextBlock = { $typeName: "gateway.inference.v1.TextBlock", text, refusal };
  if (phase !== undefined) value.phase = phase;
  return blockStart(index, newBlock({ case: "text", value }));
}

export function thinkingStart(index: number, thinking: string, signature: string): Event {
  const value = { $typeName: "gateway.inference.v1.ThinkingBlock", thinking, signature } as const;
  return blockStart(index, newBlock({ case: "thinking", value }));
}

/** `attached`: what the provider wants back with it. */
export function redactedStart(index: number, data: string, attached?: Attached): Event {
  const value = { $typeName: "gateway.inference.v1.RedactedThinkingBlock", data } as const;
  return blockStart(index, newBlock({ case: "redactedThinking", value }, attached));
}

/**
 * The arguments follow as deltas, in plain answers too, so that their text stays as the provider
 * wrote it.
 */
export function toolUseStart(index: number, id: string, name: string, attached?: Attached): Event {
  const input: JsonObject = {};
  const value = { $typeName: "gateway.inference.v1.ToolUseBlock", id, name, input } as const;
  return blockStart(index, newBlock({ case: "toolUse", value }, attached));
}

export function blockDelta(
  index: number,
  kind: BlockDelta["kind"],
  extensions?: JsonObject,
): Event {
  const value: BlockDelta = { $typeName: "gateway.inference.v1.BlockDelta", index, kind };
  if (extensions) value.extensions = extensions;
  return newEvent({ case: "blockDelta", value });
}

/** What the provider wants back with the block, once that is known. */
export function attachedDelta(index: number, attached: Attached): Event {
  const kind = { case: undefined } as const;
  const $typeName = "gateway.inference.v1.BlockDelta";
  return newEvent({ case: "blockDelta", value: { $typeName, index, kind, attached } });
}

export function blockStop(index: number): Event {
  return newEvent({
    case: "blockStop",
    value: { $typeName: "gateway.inference.v1.BlockStop", index },
  });
}

export function messageDelta(delta: Omit<MessageDelta, "$typeName">): Event {
  return newEvent({
    case: "messageDelta",
    value: { $typeName: "gateway.inference.v1.MessageDelta", ...delta },
  });
}

/** What a provider reports ahead of the end of its answer. */
export type Progress = {
  /** Set once the reason is known, although the usage is still to come. */
  readonly stopReason?: string | undefined;
  /** Totals so far. */
  readonly usage?: ReportedUsage | undefined;
};

/** An event of a provider's stream that is for the meter alone, and part of no answer. */
class ProgressEvent implements Event {
  readonly $typeName = "gateway.inference.v1.Event";
  readonly kind: Event["kind"] = { case: undefined };
  readonly report: Progress;

  constructor(report: Progress) {
    this.report = report;
  }
}

/** A report ahead of the end, for the meter. */
export function progress(report: Progress): Event {
  return new ProgressEvent(report);
}

/** The report that an event is; undefined for an event of the answer. */
export function progressOf(event: Event): Progress | undefined {
  return event instanceof ProgressEvent ? event.report : undefined;
}

export function messageStop(): Event {
  return newEvent({
    case: "messageStop",
    value: { $typeName: "gateway.inference.v1.MessageStop" },
  });
}

export function ping(): Event {
  return newEvent({ case: "ping", value: { $typeName: "gateway.inference.v1.Ping" } });
}

/** Ends an answer with an error. `type` is an error type of the native format, as `api_error`. */
export function failure(type: string, message: string, extensions?: JsonObject): Event {
  const value: Failure = { $typeName: "gateway.inference.v1.Failure", type, message };
  if (extensions) value.extensions = extensions;
  return newEvent({ case: "failure", value });
}

/** An event of a kind that event.proto does not name, with all its members. */
export function otherEvent(value: JsonObject): Event {
  return newEvent({ case: "other", value });
}
