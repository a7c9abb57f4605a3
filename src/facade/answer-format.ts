// What the two formats do differently with an answer.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Envelope } from "./problem.ts";

export type AnswerFormat = {
  readonly envelope: Envelope;
  encodeAnswer(events: readonly Event[], admission: Admission): JsonObject;
  createEventEncoder(admission: Admission): EventEncoder;
};

export type EventEncoder = {
  /** Events as text of the stream; empty when none of them shows in this format. */
  encode(events: readonly Event[]): string;
  /** Something that clients skip. */
  ping(): string;
  /** The last event of a stream that failed. */
  failure(problem: JsonObject): string;
  /** What follows the last event of a stream that ended well. */
  end(): string;
};
