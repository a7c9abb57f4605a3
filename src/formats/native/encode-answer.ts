// Events → a plain answer in the native format.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type {
  BlockDelta,
  Event,
  MessageDelta,
  MessageStart,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import type { AnswerContext } from "../codec.ts";
import { isObject, parseJsonText } from "../json.ts";
import { encodeBlock } from "./encode-block.ts";
import { carrierFor, messageId } from "./encode-events.ts";
import { completeUsage, encodeUsage, mergeUsage } from "./usage.ts";

/**
 * The plain answer with the content of `events`, which are all events of one complete answer, in
 * the order of event.proto.
 */
export function encodeAnswer(answer: readonly Event[], context: AnswerContext): JsonObject {
  const carrier = answer[0] && carrierFor(answer[0], context);
  const events = carrier ? carrier.carry(answer) : answer;
  // A native provider's answer has what it has. Of others, members that clients' types promise.
  let message: JsonObject = isNative(answer[0]) ? {} : { ...promised };
  let id = "";
  let stopReason = "end_turn";
  let stopSequence: string | null = null;
  let usage: JsonObject = {};
  /** True when the end of the answer has the charged input, which may be 0. */
  let isCharged = false;
  const content: JsonValue[] = [];
  let block: OpenBlock | undefined;

  const begin = ({ id: own, extensions, usage: first }: MessageStart): void => {
    id = own;
    const { content: earlier, ...others } = extensions ?? {};
    if (Array.isArray(earlier)) content.push(...earlier);
    if (typeof others.stop_reason === "string") stopReason = others.stop_reason;
    if (typeof others.stop_sequence === "string") stopSequence = others.stop_sequence;
    message = { ...message, ...others };
    if (first) usage = encodeUsage(first);
  };
  const finish = (delta: MessageDelta): void => {
    stopReason = delta.stopReason ?? stopReason;
    stopSequence = delta.stopSequence ?? stopSequence;
    message = { ...message, ...delta.deltaExtensions, ...delta.extensions };
    if (delta.usage) usage = mergeUsage(usage, encodeUsage(delta.usage));
    isCharged = delta.cost !== undefined && delta.usage?.inputTokens !== undefined;
  };

  for (const { kind } of events) {
    switch (kind.case) {
      case "messageStart":
        begin(kind.value);
        break;
      case "blockStart": {
        const start = kind.value.block && encodeBlock(kind.value.block, true);
        block = start && { members: { ...start }, input: "" };
        break;
      }
      case "blockDelta":
        if (block) applyDelta(block, kind.value);
        break;
      case "blockStop":
        if (block) content.push(completed(block));
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
  // The first `own` sets the order of the members; the second keeps the provider's members from
  // replacing ours.
  const estimate = isCharged ? undefined : context.estimatedInputTokens;
  return { ...own, ...message, ...own, usage: completeUsage(usage, estimate) };
}

function isNative(start: Event | undefined): boolean {
  return start?.kind.case === "messageStart" && start.kind.value.attached?.format === Format.NATIVE;
}

const promised: JsonObject = {
  stop_details: null,
  container: null,
  diagnostics: null,
  context_management: null,
};

/** A block while its deltas arrive, and the JSON text of its tool input so far. */
type OpenBlock = { readonly members: JsonObject; input: string };

function applyDelta(block: OpenBlock, { kind }: BlockDelta): void {
  const { members } = block;
  switch (kind.case) {
    case "text":
      members.text = `${members.text ?? ""}${kind.value}`;
      break;
    case "thinking":
      members.thinking = `${members.thinking ?? ""}${kind.value}`;
      break;
    case "signature":
      members.signature = kind.value;
      break;
    case "inputJson":
      block.input += kind.value;
      break;
    case "other":
      applyOtherDelta(members, kind.value);
      break;
  }
}

function applyOtherDelta(members: JsonObject, { type, ...delta }: JsonObject): void {
  if (type === "citations_delta" && delta.citation !== undefined) {
    const earlier = Array.isArray(members.citations) ? members.citations : [];
    members.citations = [...earlier, delta.citation];
  }
  // A compaction has one delta, with the final value.
  if (type === "compaction_delta") Object.assign(members, delta);
}

function completed({ members, input }: OpenBlock): JsonObject {
  if (input === "") return members;
  // The arguments may be cut at the token limit, and small models write invalid JSON. An empty
  // input would let the tool run as if it had been called without arguments.
  const parsed = parseJsonText(input);
  return { ...members, input: isObject(parsed) ? parsed : { _raw: input } };
}
