// A generated answer as one JSON body, and the parts that plain and streamed answers share: the
// format's codec and the headers.

import assert from "node:assert/strict";
import type { JsonObject } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { FastifyReply } from "fastify";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Admission, GenerateResponse } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { credits } from "../base/money.ts";
import type { EventEncoder } from "../formats/codec.ts";
import type { RequestContext } from "./context.ts";
import { type Envelope, rateHeaders } from "./error-body.ts";
import { sendJson } from "./reply.ts";

/** The parts of an answer that differ between the native and the chat format. */
export type AnswerFormat = {
  readonly envelope: Envelope;
  encodeAnswer(events: readonly Event[], admission: Admission): JsonObject;
  createEventEncoder(admission: Admission): EventEncoder;
};

/** Sends the whole answer as JSON, once it is complete and charged. */
export async function sendAnswer(
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
  assert(admission && receipt, "a complete answer has an admission and a receipt");
  reply.header("x-gateway-cost-credits", credits(receipt.amountMicrocredits));
  return sendJson(reply, format.encodeAnswer(events, admission));
}

/** The headers of an admitted request: a reduced output limit, and the state of the rate limit. */
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
