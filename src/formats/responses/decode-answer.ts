// A provider's plain response → events.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { type AnswerSource, unreadableAnswer } from "../codec.ts";
import { failure } from "../events.ts";
import { OutputReader, readResponseError } from "./read-output.ts";

/** The events of a `response` body; one `failure` if the body is not an answer. */
export function decodeAnswer(body: JsonObject, source?: AnswerSource): Event[] {
  const error = readResponseError(body);
  if (error) return [error];
  if (!Array.isArray(body.output))
    return [failure(unreadableAnswer, "The model provider's answer is not a response.")];
  const reader = new OutputReader(source);
  reader.finish(body, { response: body });
  const events = reader.take();
  const last = events.at(-1);
  return last?.kind.case === "failure" ? [last] : events;
}
