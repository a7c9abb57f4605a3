// Events → a plain response.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { type ResponseContext, ResponseEncoder } from "./encode-events.ts";

/** The plain answer with the content of `events`, which are all events of one complete answer. */
export function encodeAnswer(events: readonly Event[], context: ResponseContext): JsonObject {
  const encoder = new ResponseEncoder(context);
  encoder.encode(events);
  encoder.end();
  const response: JsonObject = JSON.parse(encoder.response());
  return response;
}
