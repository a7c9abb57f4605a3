// POST /v1/chat/completions: the chat format.

import type { FastifyReply, FastifyRequest } from "fastify";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { type Core, withRuns } from "../contract/contract.ts";
import {
  createEventEncoder,
  decodeRequest,
  encodeAnswer,
  wantsUsage,
} from "../formats/chat/chat.ts";
import type { ReadJson } from "./body.ts";
import { identityOf } from "./context.ts";
import { type AnswerFormat, sendAnswer } from "./send-answer.ts";
import { type StreamSettings, sendStream } from "./send-stream.ts";

export function postChatCompletions(
  core: Core,
  readJson: ReadJson,
  { keepAlive, showCost }: StreamSettings,
) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { context } = request;
    const { call } = identityOf(request);
    const body = await readJson(request);
    const decoded = decodeRequest(body);
    if (decoded.stream) withRuns(call.contextValues);
    const answer = core.inference.generate(decoded, call);
    const format = formatOf(wantsUsage(body), showCost);
    context.logFields.stream = decoded.stream === true;
    return decoded.stream
      ? sendStream(reply, answer, format, context, call.signal, keepAlive)
      : sendAnswer(reply, answer, format, context);
  };
}

function formatOf(includeUsage: boolean, showCost: boolean): AnswerFormat {
  // All chunks of one stream carry the same time.
  const createdAtMs = Date.now();
  const contextOf = ({ model, estimatedInputTokens }: Admission) => ({
    model,
    estimatedInputTokens,
    showCost,
    includeUsage,
    createdAtMs,
  });
  return {
    envelope: "chat",
    encodeAnswer: (events, admission) => encodeAnswer(events, contextOf(admission)),
    createEventEncoder: (admission) => createEventEncoder(contextOf(admission)),
  };
}
