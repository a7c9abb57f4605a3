// POST /v1/responses: the Responses format, without stored responses.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../base/errors.ts";
import { ref } from "../base/json-schema.ts";
import type { Core } from "../contract/contract.ts";
import { isObject } from "../formats/json.ts";
import type { Sealing } from "../formats/packs.ts";
import {
  createEventEncoder,
  decodeRequest,
  encodeAnswer,
  encodeFailure,
  hasOldContent,
  readWishes,
  type Wishes,
} from "../formats/responses/responses.ts";
import { type ReadJson, withHeaderTags } from "./body.ts";
import { accountOf, callFor } from "./context.ts";
import { eventStream, eventsOf, json, type Operation } from "./operation.ts";
import type { SealedContent } from "./sealed-content.ts";
import { type AnswerFormat, type AnswerSettings, sendAnswer } from "./send-answer.ts";

export const responsesOperation: Operation = {
  id: "createResponse",
  summary: "Generates an answer in the Responses format",
  description:
    "Nothing is stored: send the whole input. With `stream`, the answer is a stream of " +
    "`ResponseEvent`, one in each `data`.",
  body: ref("ResponsesRequest"),
  answer: {
    [json]: ref("Response"),
    [eventStream]: eventsOf("ResponseEvent"),
  },
  isPaid: true,
};

export function postResponses(
  readJson: ReadJson,
  sealedContent: SealedContent,
  answers: AnswerSettings,
) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const body = await readJson(request);
    const oldModel = hasOldContent(body) ? await resolveModel(answers.core, body, request) : "";
    const sealing = sealedContent.sealingOf(accountOf(request), oldModel);
    const decoded = withHeaderTags(decodeRequest(body, sealing), request.headers);
    const format = formatOf(decoded.model, readWishes(body), sealing, answers.showCost);
    return sendAnswer({ ...answers, request, reply, generateRequest: decoded, format });
  };
}

/** Catalogue id of the model that will answer: content of the old form is sealed for one model. */
async function resolveModel(core: Core, body: JsonValue, request: FastifyRequest): Promise<string> {
  const name = isObject(body) && typeof body.model === "string" ? body.model : "";
  if (name === "") throw new ApiError("model_not_found", { field: "model" });
  const { model } = await core.inference.getModel({ modelId: name }, callFor(request));
  return model?.aliasFor || model?.modelId || "";
}

/** The stream of a request that fails before its body is read. */
export function writeFailedStream(body: JsonObject): string {
  const context = { model: "", estimatedInputTokens: 0, wishes: readWishes({}) };
  return encodeFailure({ ...context, createdAtMs: Date.now() }, body);
}

/** `asked`: the name of the model in the request. */
function formatOf(
  asked: string,
  wishes: Wishes,
  sealing: Sealing,
  showCost: boolean,
): AnswerFormat {
  const createdAtMs = Date.now();
  const contextOf = ({
    model,
    estimatedInputTokens,
  }: Pick<Admission, "model" | "estimatedInputTokens">) => ({
    model,
    estimatedInputTokens,
    showCost,
    createdAtMs,
    wishes,
    sealing,
  });
  return {
    envelope: "responses",
    showCost,
    encodeAnswer: (events, admission) => encodeAnswer(events, contextOf(admission)),
    createEventEncoder: (admission) => createEventEncoder(contextOf(admission)),
    encodeFailure: (body) =>
      encodeFailure(contextOf({ model: asked, estimatedInputTokens: 0 }), body),
  };
}
