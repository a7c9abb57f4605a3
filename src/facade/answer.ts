// A generated answer on its way out, whole or as a stream. What the two formats do differently is an `AnswerFormat`.

import assert from "node:assert/strict";
import type { JsonObject } from "@bufbuild/protobuf";
import type { FastifyReply } from "fastify";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Admission, GenerateResponse } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { admissionHeaders, receiptHeaders } from "./answer-headers.ts";
import type { Exchange } from "./exchange.ts";
import { sendJson } from "./json-reply.ts";
import type { Envelope } from "./problem.ts";

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

export type AnswerFormat = {
  readonly envelope: Envelope;
  encodeAnswer(events: readonly Event[], admission: Admission): JsonObject;
  createEventEncoder(admission: Admission): EventEncoder;
};

/** Sends the whole answer as JSON, once it is complete and charged. */
export async function sendWhole(
  reply: FastifyReply,
  answer: AsyncIterable<GenerateResponse>,
  format: AnswerFormat,
  exchange: Exchange,
): Promise<FastifyReply> {
  let admission: Admission | undefined;
  const events: Event[] = [];
  for await (const { kind } of answer) {
    if (kind.case === "events") events.push(...kind.value.events);
    else if (kind.case === "admission") {
      admission = kind.value;
      exchange.noted.model = admission.model;
      reply.headers(admissionHeaders(format.envelope, admission));
    } else if (kind.case === "receipt") exchange.receipt = kind.value.receipt;
  }
  const { receipt } = exchange;
  assert(admission && receipt, "an answer that ends well has an admission and a receipt");
  reply.headers(receiptHeaders(receipt));
  return sendJson(reply, format.encodeAnswer(events, admission));
}
