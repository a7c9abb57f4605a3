// POST /v1/chat/completions: the chat format, and bodies of the Responses format, which are
// answered in it.

import type { FastifyReply, FastifyRequest } from "fastify";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { anyOf, ref } from "../base/json-schema.ts";
import {
  createEventEncoder,
  customTools,
  decodeRequest,
  encodeAnswer,
  hasFunctions,
  wantsUsage,
} from "../formats/chat/chat.ts";
import { isObject } from "../formats/json.ts";
import type { Sealing } from "../formats/packs.ts";
import * as responses from "../formats/responses/responses.ts";
import { type ReadJson, withHeaderTags } from "./body.ts";
import { accountOf } from "./context.ts";
import { eventStream, eventsOf, json, type Operation } from "./operation.ts";
import type { SealedContent } from "./sealed-content.ts";
import { type AnswerFormat, type AnswerSettings, sendAnswer } from "./send-answer.ts";

export const chatOperation: Operation = {
  id: "createChatCompletion",
  summary: "Generates an answer in the chat format",
  description:
    "With `stream`, the answer is a stream of `ChatChunk`, one in each `data`. A body with `input` " +
    "in place of `messages` is one of the Responses format, whose tools may have either form. It " +
    "is answered as any other here.",
  body: anyOf(ref("ChatRequest"), ref("ResponsesOnChatPath")),
  answer: {
    [json]: ref("ChatCompletion"),
    [eventStream]: eventsOf("ChatChunk", "Then `[DONE]`."),
  },
  isPaid: true,
};

export function postChatCompletions(
  readJson: ReadJson,
  sealedContent: SealedContent,
  answers: AnswerSettings,
) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { context } = request;
    const sealing = sealedContent.sealingOf(accountOf(request));
    const body = await readJson(request);
    const isResponses = responses.isOfChatPath(body);
    // Its errors name the fields of the body.
    if (isResponses) context.envelope = "responses";
    const decoded = isResponses
      ? responses.decodeRequest(responses.fromChatPath(body), sealing)
      : decodeRequest(body, sealing);
    const members = isObject(body) ? body : {};
    const format = formatOf({
      envelope: context.envelope,
      showCost: answers.showCost,
      sealing,
      includeUsage: wantsUsage(body),
      hasFunctions: hasFunctions(body),
      customTools: customTools(members, "all"),
      isTranslated: isResponses || customTools(members, "flat").size > 0,
    });
    const generateRequest = withHeaderTags(decoded, request.headers);
    return sendAnswer({ ...answers, request, reply, generateRequest, format });
  };
}

type Settings = Pick<AnswerFormat, "envelope" | "showCost"> & {
  readonly sealing: Sealing;
  readonly includeUsage: boolean;
  readonly hasFunctions: boolean;
  readonly customTools: ReadonlySet<string>;
  readonly isTranslated: boolean;
};

function formatOf({ envelope, ...settings }: Settings): AnswerFormat {
  // All chunks of one stream carry the same time.
  const createdAtMs = Date.now();
  const contextOf = ({ model, estimatedInputTokens }: Admission) => ({
    ...settings,
    model,
    estimatedInputTokens,
    createdAtMs,
  });
  return {
    envelope,
    showCost: settings.showCost,
    encodeAnswer: (events, admission) => encodeAnswer(events, contextOf(admission)),
    createEventEncoder: (admission) => createEventEncoder(contextOf(admission)),
  };
}
