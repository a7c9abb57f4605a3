// POST /v1/chat/completions.

import type { FastifyReply, FastifyRequest } from "fastify";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Core } from "../contract/contract.ts";
import {
  createEventEncoder,
  decodeRequest,
  encodeAnswer,
  wantsUsage,
} from "../formats/chat/chat.ts";
import { readJson } from "./body.ts";
import { identityOf } from "./context.ts";
import type { AnswerFormat } from "./send-answer.ts";
import { sendWhole } from "./send-answer.ts";
import { type KeepAlive, sendStream } from "./send-stream.ts";

export function postChatCompletions(core: Core, pace: KeepAlive) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { context } = request;
    const { call } = identityOf(request);
    const body = await readJson(request.raw);
    const ask = decodeRequest(body);
    const answer = core.inference.generate(ask, call);
    const format = formatOf(wantsUsage(body));
    context.logFields.stream = ask.stream === true;
    return ask.stream
      ? sendStream(reply, answer, format, context, call.signal, pace)
      : sendWhole(reply, answer, format, context);
  };
}

function formatOf(includeUsage: boolean): AnswerFormat {
  // All chunks of a stream carry the same time.
  const createdAtMs = Date.now();
  const contextOf = ({ model, estimatedInputTokens }: Admission) => ({
    model,
    estimatedInputTokens,
    includeUsage,
    createdAtMs,
  });
  return {
    envelope: "chat",
    encodeAnswer: (events, admission) => encodeAnswer(events, contextOf(admission)),
    createEventEncoder: (admission) => createEventEncoder(contextOf(admission)),
  };
}
