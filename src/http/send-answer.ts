// A generated answer as one JSON body.

import assert from "node:assert/strict";
import type { JsonObject } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { FastifyReply } from "fastify";
import type { Receipt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Admission, GenerateResponse } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { credits } from "../base/money.ts";
import type { EventEncoder } from "../formats/codec.ts";
import type { RequestContext } from "./context.ts";
import { type Envelope, rateHeaders } from "./error-body.ts";
import { sendJson } from "./reply.ts";

/** Sends the whole answer as JSON, once it is complete and charged. */
export async function sendWhole(
  reply: FastifyReply,
  answer: AsyncIterable<GenerateResponse>,
  format: AnswerFormat,
  context: RequestContext,
): Promise<FastifyReply> {
  let admission: Admission | undefined;
  const events: Event[] = [];
  for await (const { kind } of answer) {
    if (kind.case === "events") events.push(...kind.value.events);
    else if (kind.case === "admission") {
      admission = kind.value;
      context.logFields.model = admission.model;
      reply.headers(admissionHeaders(format.envelope, admission));
    } else if (kind.case === "receipt") context.receipt = kind.value.receipt;
  }
  const { receipt } = context;
  assert(admission && receipt, "an answer that ends well has an admission and a receipt");
  reply.headers(receiptHeaders(receipt));
  return sendJson(reply, format.encodeAnswer(events, admission));
}

// What the two formats do differently with an answer.

export type AnswerFormat = {
  readonly envelope: Envelope;
  encodeAnswer(events: readonly Event[], admission: Admission): JsonObject;
  createEventEncoder(admission: Admission): EventEncoder;
};

// What the admission and the receipt of a request tell in headers.

/** Headers of an admitted request, in either mode. */
export function admissionHeaders(envelope: Envelope, admission: Admission): Record<string, string> {
  const { rateLimit, grantedMaxTokens, requestedMaxTokens } = admission;
  const headers: Record<string, string> = {};
  if (grantedMaxTokens < requestedMaxTokens)
    headers["x-gateway-max-tokens"] = String(grantedMaxTokens);
  if (rateLimit) {
    const resetsAt = rateLimit.resetsAt && timestampDate(rateLimit.resetsAt);
    Object.assign(headers, rateHeaders(envelope, { ...rateLimit, resetsAt }));
  }
  return headers;
}

/** Headers of a plain answer, whose cost is known before it leaves. */
export function receiptHeaders(receipt: Receipt): Record<string, string> {
  return { "x-gateway-cost-credits": credits(receipt.amountMicrocredits) };
}
