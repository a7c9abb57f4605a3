// A generated answer as one JSON body.

import assert from "node:assert/strict";
import type { FastifyReply } from "fastify";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Admission, GenerateResponse } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { AnswerFormat } from "./answer-format.ts";
import { admissionHeaders, receiptHeaders } from "./answer-headers.ts";
import type { Exchange } from "./exchange.ts";
import { sendJson } from "./json-reply.ts";

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
