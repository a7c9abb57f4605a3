// Events → a plain response.

import type { JsonObject } from "@bufbuild/protobuf";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { ResponseEncoder } from "./encode-events.ts";
import type { ResponseContext } from "./ending.ts";
import { ResponseRelay } from "./relay.ts";

/** The plain answer with the content of `events`, which are all events of one complete answer. */
export function encodeAnswer(events: readonly Event[], context: ResponseContext): JsonObject {
  // As it came: a provider of this format wrote it.
  if (events.some(({ wireForm }) => wireForm?.format === Format.RESPONSES)) {
    const relay = new ResponseRelay(context);
    relay.encode(events);
    return relay.response();
  }
  const encoder = new ResponseEncoder(context);
  encoder.encode(events);
  encoder.end();
  const response: JsonObject = JSON.parse(encoder.response());
  return response;
}
