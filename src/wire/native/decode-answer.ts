// A provider's plain answer in the native format → Events.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { type Event, MessageDeltaSchema, MessageStartSchema } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { isObject } from "../json.ts";
import { decodeBlock } from "./decode-block.ts";
import { assumedStopReason, brokenAnswer, completeBlock, decodeEvent, eventOf } from "./decode-event.ts";
import { kept } from "./extensions.ts";
import { decodeUsage } from "./usage.ts";

/**
 * The events of a whole answer: each block arrives complete, without deltas. The first usage has the input side only and no output,
 * because some clients add the outputs of the first and the last report. A body that is no answer becomes a `failure`.
 */
export function decodeAnswer(body: JsonObject): Event[] {
  const { id, type, role, model, content, stop_reason, stop_sequence, usage, ...rest } = body;
  if (type === "error") return [decodeEvent("error", JSON.stringify(body)) ?? brokenAnswer(unreadable)];
  if (!Array.isArray(content) || !content.every(isObject)) return [brokenAnswer(unreadable)];

  const start = create(MessageStartSchema, {
    id: typeof id === "string" ? id : "",
    model: typeof model === "string" ? model : "",
  });
  if (isObject(usage)) start.usage = decodeUsage(inputSide(usage));
  const delta = create(MessageDeltaSchema);
  if (isObject(usage)) delta.usage = decodeUsage(usage);
  delta.deltaExtensions = takeDeltaMembers(rest);
  const calledTool = content.some((block) => block.type === "tool_use");
  delta.stopReason = typeof stop_reason === "string" ? stop_reason : assumedStopReason(calledTool);
  if (typeof stop_sequence === "string") delta.stopSequence = stop_sequence;
  start.extensions = kept(rest);

  return [
    eventOf({ case: "messageStart", value: start }),
    ...content.flatMap((block, index): Event[] => [
      eventOf({
        case: "blockStart",
        value: { $typeName: "gateway.inference.v1.BlockStart", index, block: decodeBlock(completeBlock(block)) },
      }),
      eventOf({ case: "blockStop", value: { $typeName: "gateway.inference.v1.BlockStop", index } }),
    ]),
    eventOf({ case: "messageDelta", value: delta }),
    eventOf({ case: "messageStop", value: { $typeName: "gateway.inference.v1.MessageStop" } }),
  ];
}

const unreadable = "The model provider sent an answer that cannot be read.";

function inputSide({
  input_tokens,
  cache_creation_input_tokens,
  cache_read_input_tokens,
  cache_creation,
}: JsonObject): JsonObject {
  const all = { input_tokens, cache_creation_input_tokens, cache_read_input_tokens, cache_creation };
  const told = Object.entries(all).filter((member): member is [string, JsonValue] => member[1] !== undefined);
  return { ...Object.fromEntries(told), output_tokens: 0 };
}

/** The members of an answer that a stream tells at its end. */
function takeDeltaMembers(rest: JsonObject): JsonObject | undefined {
  const taken: JsonObject = {};
  for (const name of ["stop_details", "container"]) {
    if (rest[name] === undefined) continue;
    taken[name] = rest[name];
    delete rest[name];
  }
  return kept(taken);
}
