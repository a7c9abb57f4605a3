// A plain answer in the native format → events.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { type AnswerSource, unreadableAnswer } from "../codec.ts";
import {
  blockStart,
  blockStop,
  failure,
  messageDelta,
  messageStart,
  messageStop,
} from "../events.ts";
import { isObject, unknownFields } from "../json.ts";
import { completeBlock, decodeBlock } from "./decode-block.ts";
import { assumedStopReason, decodeEvent } from "./decode-events.ts";
import { decodeUsage } from "./usage.ts";

/**
 * The events of a plain answer; one `failure` if the body is not an answer. Each block starts
 * complete, without deltas. The first usage has the input and an output of 0, because some clients
 * add the outputs of the first and the last usage.
 */
export function decodeAnswer(body: JsonObject, source: AnswerSource = {}): Event[] {
  const { id, type, role, model, content, stop_reason, stop_sequence, usage, ...rest } = body;
  if (type === "error") return [decodeEvent("error", JSON.stringify(body)) ?? unreadable()];
  if (!Array.isArray(content) || !content.every(isObject)) return [unreadable()];

  const deltaExtensions = takeDeltaMembers(rest);
  const calledTool = content.some((block) => block.type === "tool_use");
  const start = messageStart(
    {
      id: typeof id === "string" ? id : "",
      model: typeof model === "string" ? model : "",
      usage: isObject(usage) ? decodeUsage(inputSide(usage)) : undefined,
      extensions: unknownFields(rest),
    },
    source,
  );
  const blocks = content.flatMap((block, index) => [
    blockStart(index, decodeBlock(completeBlock(block))),
    blockStop(index),
  ]);
  const delta = messageDelta({
    stopReason: typeof stop_reason === "string" ? stop_reason : assumedStopReason(calledTool),
    stopSequence: typeof stop_sequence === "string" ? stop_sequence : undefined,
    usage: isObject(usage) ? decodeUsage(usage) : undefined,
    deltaExtensions,
  });
  return [start, ...blocks, delta, messageStop()];
}

function unreadable(): Event {
  return failure(unreadableAnswer, "The model provider sent an answer that cannot be read.");
}

const inputMembers = [
  "input_tokens",
  "cache_creation_input_tokens",
  "cache_read_input_tokens",
  "cache_creation",
] as const;

function inputSide(usage: JsonObject): JsonObject {
  const input: JsonObject = { output_tokens: 0 };
  for (const name of inputMembers) if (usage[name] !== undefined) input[name] = usage[name];
  return input;
}

/** Removes from `rest`, and returns, the members that a stream has in `message_delta`. */
function takeDeltaMembers(rest: JsonObject): JsonObject | undefined {
  const taken: JsonObject = {};
  for (const name of ["stop_details", "container"]) {
    if (rest[name] === undefined) continue;
    taken[name] = rest[name];
    delete rest[name];
  }
  return unknownFields(taken);
}
