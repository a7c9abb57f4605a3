// A provider's plain response → events.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { unreadableAnswer } from "../codec.ts";
import { failure } from "../events.ts";
import { OutputReader, readResponseError } from "./read-output.ts";

/** The events of a `response` body; one `failure` if the body is not an answer. */
export function decodeAnswer(body: JsonObject): Event[] {
  const error = readResponseError(body);
  if (error) return [error];
  if (!Array.isArray(body.output))
    return [failure(unreadableAnswer, "The model provider's answer is not a response.")];
  const reader = new OutputReader();
  reader.finish(body);
  const events = reader.take();
  const last = events.at(-1);
  return last?.kind.case === "failure" ? [last] : events;
}
