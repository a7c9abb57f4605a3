// Hub events as the decoders of this format make them. Literals in place of `create`, which walks a message's members: these are made
// once per token.

import type { JsonObject } from "@bufbuild/protobuf";
import { type Block, Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { BlockDelta, Event, ReportedUsage } from "../../../gen/gateway/inference/v1/event_pb.ts";

const noBytes = new Uint8Array(0);

function event(kind: Event["kind"]): Event {
  return { $typeName: "gateway.inference.v1.Event", kind, raw: noBytes, rawFormat: Format.UNSPECIFIED };
}

/** `model` is the provider's name for it. Its own id stays out: it has the form of this format, and doors mint theirs. */
export function messageStart(model: string): Event {
  return event({ case: "messageStart", value: { $typeName: "gateway.inference.v1.MessageStart", id: "", model } });
}

function blockStart(index: number, kind: Block["kind"]): Event {
  const block: Block = { $typeName: "gateway.inference.v1.Block", kind };
  return event({ case: "blockStart", value: { $typeName: "gateway.inference.v1.BlockStart", index, block } });
}

export function textStart(index: number, text: string): Event {
  return blockStart(index, { case: "text", value: { $typeName: "gateway.inference.v1.TextBlock", text } });
}

export function thinkingStart(index: number, thinking: string, signature: string): Event {
  return blockStart(index, {
    case: "thinking",
    value: { $typeName: "gateway.inference.v1.ThinkingBlock", thinking, signature },
  });
}

/** The arguments follow as deltas, also in plain answers: that keeps their text as the provider wrote it. */
export function toolUseStart(index: number, id: string, name: string): Event {
  const input: JsonObject = {};
  return blockStart(index, { case: "toolUse", value: { $typeName: "gateway.inference.v1.ToolUseBlock", id, name, input } });
}

export function blockDelta(index: number, kind: BlockDelta["kind"]): Event {
  return event({ case: "blockDelta", value: { $typeName: "gateway.inference.v1.BlockDelta", index, kind } });
}

export function blockStop(index: number): Event {
  return event({ case: "blockStop", value: { $typeName: "gateway.inference.v1.BlockStop", index } });
}

/** The two events that end an answer. */
export function messageEnd(stopReason: string, usage: ReportedUsage | undefined): Event[] {
  return [
    event({ case: "messageDelta", value: { $typeName: "gateway.inference.v1.MessageDelta", stopReason, usage } }),
    event({ case: "messageStop", value: { $typeName: "gateway.inference.v1.MessageStop" } }),
  ];
}

/** `type` is one of the native format's, as `api_error`. */
export function failure(type: string, message: string): Event {
  return event({ case: "failure", value: { $typeName: "gateway.inference.v1.Failure", type, message } });
}
