// Events → the plain answer of the native format.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type {
  BlockDelta,
  Event,
  MessageDelta,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { AnswerContext } from "../codec.ts";
import { isObject, parseJsonText } from "../json.ts";
import { encodeBlock } from "./encode-block.ts";
import { messageId } from "./encode-events.ts";
import { completeUsage, encodeUsage, mergeUsage } from "./usage.ts";

/**
 * The answer that `events` add up to: all events of one complete answer, in the order of
 * event.proto.
 */
export function encodeAnswer(events: readonly Event[], context: AnswerContext): JsonObject {
  // Members that clients' types promise, in case the provider leaves them out.
  let message: JsonObject = {
    stop_details: null,
    container: null,
    diagnostics: null,
    context_management: null,
  };
  let id = "";
  let stopReason = "end_turn";
  let stopSequence: string | null = null;
  let usage: JsonObject = {};
  const content: JsonValue[] = [];
  let block: GrowingBlock | undefined;

  const finish = (delta: MessageDelta): void => {
    stopReason = delta.stopReason ?? stopReason;
    stopSequence = delta.stopSequence ?? stopSequence;
    message = { ...message, ...delta.deltaExtensions, ...delta.extensions };
    if (delta.usage) usage = mergeUsage(usage, encodeUsage(delta.usage));
  };

  for (const { kind } of events) {
    switch (kind.case) {
      case "messageStart": {
        id = kind.value.id;
        const { content: earlier, ...others } = kind.value.extensions ?? {};
        if (Array.isArray(earlier)) content.push(...earlier);
        message = { ...message, ...others };
        if (kind.value.usage) usage = encodeUsage(kind.value.usage);
        break;
      }
      case "blockStart": {
        const start = kind.value.block && encodeBlock(kind.value.block, true);
        block = start && { whole: { ...start }, input: "" };
        break;
      }
      case "blockDelta":
        if (block) grow(block, kind.value);
        break;
      case "blockStop":
        if (block) content.push(grown(block));
        block = undefined;
        break;
      case "messageDelta":
        finish(kind.value);
        break;
    }
  }
  const own: JsonObject = {
    id: messageId(id),
    type: "message",
    role: "assistant",
    model: context.model,
    content,
    stop_reason: stopReason,
    stop_sequence: stopSequence,
  };
  // Once for their place, and once more because no member of the provider's may replace them.
  return { ...own, ...message, ...own, usage: completeUsage(usage, context.estimatedInputTokens) };
}

/** A block and the JSON text of its tool input so far. */
type GrowingBlock = { readonly whole: JsonObject; input: string };

function grow(block: GrowingBlock, { kind }: BlockDelta): void {
  const { whole } = block;
  switch (kind.case) {
    case "text":
      whole.text = `${whole.text ?? ""}${kind.value}`;
      break;
    case "thinking":
      whole.thinking = `${whole.thinking ?? ""}${kind.value}`;
      break;
    case "signature":
      whole.signature = kind.value;
      break;
    case "inputJson":
      block.input += kind.value;
      break;
    case "other":
      growByOther(whole, kind.value);
      break;
  }
}

function growByOther(whole: JsonObject, delta: JsonObject): void {
  const { type, ...members } = delta;
  if (type === "citations_delta" && members.citation !== undefined) {
    whole.citations = [
      ...(Array.isArray(whole.citations) ? whole.citations : []),
      members.citation,
    ];
  }
  // Its one delta holds the final value.
  if (type === "compaction_delta") Object.assign(whole, members);
}

function grown({ whole, input }: GrowingBlock): JsonObject {
  if (input === "") return whole;
  // An answer that was cut at its token limit may end inside the arguments, and small models write
  // what is not JSON. No tool shall run as if it had been called with nothing.
  const parsed = parseJsonText(input);
  return { ...whole, input: isObject(parsed) ? parsed : { _raw: input } };
}
