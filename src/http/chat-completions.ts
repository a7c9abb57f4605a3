// POST /v1/chat/completions: the chat format.

import type { FastifyReply, FastifyRequest } from "fastify";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ref } from "../base/json-schema.ts";
import type { Core } from "../contract/contract.ts";
import {
  createEventEncoder,
  decodeRequest,
  encodeAnswer,
  hasFunctions,
  wantsUsage,
} from "../formats/chat/chat.ts";
import type { Sealing } from "../formats/packs.ts";
import type { ReadJson } from "./body.ts";
import { accountOf } from "./context.ts";
import { eventStream, eventsOf, json, type Operation } from "./operation.ts";
import type { SealedContent } from "./sealed-content.ts";
import { type AnswerFormat, type StreamSettings, sendAnswer } from "./send-answer.ts";
import { withHeaderTags } from "./tags.ts";

export const chatOperation: Operation = {
  id: "createChatCompletion",
  summary: "Generates an answer in the chat format",
  description: "With `stream`, the answer is a stream of `ChatChunk`, one in each `data`.",
  body: ref("ChatRequest"),
  answer: {
    [json]: ref("ChatCompletion"),
    [eventStream]: eventsOf("ChatChunk", "Then `[DONE]`."),
  },
  isPaid: true,
  errors: ["responses_api_unsupported"],
};

export function postChatCompletions(
  core: Core,
  readJson: ReadJson,
  sealedContent: SealedContent,
  { keepAlive, showCost }: StreamSettings,
) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const sealing = sealedContent.sealingOf(accountOf(request));
    const body = await readJson(request);
    const decoded = withHeaderTags(decodeRequest(body, sealing), request.headers);
    const wishes = { includeUsage: wantsUsage(body), hasFunctions: hasFunctions(body) };
    const format = formatOf(wishes, sealing, showCost);
    return sendAnswer({ core, request, reply, generateRequest: decoded, format, keepAlive });
  };
}

/** What a client wants of the form of its answer. */
type Wishes = { readonly includeUsage: boolean; readonly hasFunctions: boolean };

function formatOf(wishes: Wishes, sealing: Sealing, showCost: boolean): AnswerFormat {
  // All chunks of one stream carry the same time.
  const createdAtMs = Date.now();
  const contextOf = ({ model, estimatedInputTokens }: Admission) => ({
    model,
    estimatedInputTokens,
    showCost,
    sealing,
    ...wishes,
    createdAtMs,
  });
  return {
    envelope: "chat",
    showCost,
    encodeAnswer: (events, admission) => encodeAnswer(events, contextOf(admission)),
    createEventEncoder: (admission) => createEventEncoder(contextOf(admission)),
  };
}
