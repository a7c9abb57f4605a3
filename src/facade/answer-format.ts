// What the two formats do differently with an answer.

import type { JsonObject } from "@bufbuild/protobuf";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { EventEncoder } from "../wire/codec.ts";
import type { Envelope } from "./problem.ts";

export type AnswerFormat = {
  readonly envelope: Envelope;
  encodeAnswer(events: readonly Event[], admission: Admission): JsonObject;
  createEventEncoder(admission: Admission): EventEncoder;
};
