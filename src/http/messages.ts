// POST /v1/messages and /v1/messages/count_tokens: the native format.

import assert from "node:assert/strict";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ref } from "../base/json-schema.ts";
import type { Core } from "../contract/contract.ts";
import {
  createEventEncoder,
  decodeCountRequest,
  decodeRequest,
  encodeAnswer,
  encodeCount,
} from "../formats/native/native.ts";
import type { Sealing } from "../formats/packs.ts";
import { type ReadJson, withHeaderTags } from "./body.ts";
import { accountOf, callFor, type RequestContext, sendJson } from "./context.ts";
import { eventStream, eventsOf, json, type Operation } from "./operation.ts";
import type { SealedContent } from "./sealed-content.ts";
import { type AnswerFormat, type AnswerSettings, sendAnswer } from "./send-answer.ts";

function formatOf(sealing: Sealing, showCost: boolean): AnswerFormat {
  const contextOf = ({ model, estimatedInputTokens }: Admission) => ({
    model,
    estimatedInputTokens,
    showCost,
    sealing,
  });
  return {
    envelope: "native",
    showCost,
    encodeAnswer: (events, admission) => encodeAnswer(events, contextOf(admission)),
    createEventEncoder: (admission) => createEventEncoder(contextOf(admission)),
  };
}

export const messagesOperation: Operation = {
  id: "createMessage",
  summary: "Generates an answer in the native format",
  description: "With `stream`, the answer is a stream of `MessageEvent`, one in each `data`.",
  body: ref("MessagesRequest"),
  answer: { [json]: ref("Message"), [eventStream]: eventsOf("MessageEvent") },
  isPaid: true,
};

export const countOperation: Operation = {
  id: "countTokens",
  summary: "Counts the input tokens of a request, free of charge",
  body: ref("CountTokensRequest"),
  answer: { [json]: ref("TokenCount") },
  errors: ["count_rate_limited"],
};

export function postMessages(
  readJson: ReadJson,
  sealedContent: SealedContent,
  answers: AnswerSettings,
) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const sealing = sealedContent.sealingOf(accountOf(request));
    const body = await readJson(request);
    const generate = decodeRequest(body, vendorOf(request.context), sealing);
    const decoded = withHeaderTags(generate, request.headers);
    const format = formatOf(sealing, answers.showCost);
    return sendAnswer({ ...answers, request, reply, generateRequest: decoded, format });
  };
}

export function postCountTokens(core: Core, readJson: ReadJson, sealedContent: SealedContent) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const call = callFor(request);
    const sealing = sealedContent.sealingOf(accountOf(request));
    const body = await readJson(request);
    const decoded = decodeCountRequest(body, vendorOf(request.context), sealing);
    const count = await core.inference.countTokens(decoded, call);
    request.context.turn?.end(false);
    return sendJson(reply, encodeCount(count));
  };
}

function vendorOf(context: RequestContext): NonNullable<RequestContext["vendor"]> {
  assert(context.vendor, "the route reads the version header");
  return context.vendor;
}
