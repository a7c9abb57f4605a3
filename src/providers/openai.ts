// The APIs of OpenAI: hosted ones, vLLM, Ollama, llama.cpp, OpenRouter.

import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { dialectOf, type HttpProviderSettings } from "../config/catalog.ts";
import * as chat from "../formats/chat/chat.ts";
import type { AnswerSource } from "../formats/codec.ts";
import type { Fit } from "../formats/fit.ts";
import * as responses from "../formats/responses/responses.ts";
import type { Surface } from "./surface.ts";

type OpenaiSettings = Pick<
  HttpProviderSettings,
  "api" | "cacheMarks" | "dialect" | "maxTokensName" | "passMembers"
>;

/** The path of each API, by the model. */
type Paths = Readonly<Record<HttpProviderSettings["api"], (model: string) => string>>;
const usualPaths: Paths = { chat: () => "/chat/completions", responses: () => "/responses" };

/** The chat or the Responses API, neither of which counts tokens. */
export function openaiSurface(settings: OpenaiSettings, paths: Paths = usualPaths): Surface {
  const { api, cacheMarks, dialect, maxTokensName, passMembers } = settings;
  const isResponses = api === "responses";
  return {
    codec: isResponses ? responses : chat,
    generate({ request, route: { model } }, stream, fit) {
      const target = { model, stream, dialect };
      const body = isResponses
        ? responses.encodeRequest(request, target, fit)
        : chat.encodeRequest(request, { ...target, cacheMarks, maxTokensName, passMembers }, fit);
      const source = sourceOf(settings, model, request, fit);
      return { path: paths[api](model), headers: [], body, source };
    },
  };
}

function sourceOf(
  { api, cacheMarks, dialect }: OpenaiSettings,
  model: string,
  request: GenerateRequest,
  { leftOut }: Fit,
): AnswerSource {
  const format = api === "responses" ? Format.RESPONSES : Format.CHAT;
  const wantsNothing = format === Format.CHAT && dialectOf(dialect).reasoning?.length === 0;
  // The signatures of a gateway to native models are those of native providers.
  const hasWriter = !cacheMarks && !wantsNothing;
  const toolNames = chat.shortNames(request);
  return {
    ...(hasWriter && { writer: { format, dialect, model } }),
    leftOut,
    ...(toolNames && { toolNames }),
  };
}
