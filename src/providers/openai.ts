// Providers with the APIs of OpenAI: hosted ones, vLLM, Ollama, llama.cpp, OpenRouter.

import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Clock } from "../base/clock.ts";
import { dialectOf, type HttpProviderSettings } from "../config/catalog.ts";
import * as chat from "../formats/chat/chat.ts";
import type { AnswerSource } from "../formats/codec.ts";
import { Fit } from "../formats/fit.ts";
import * as responses from "../formats/responses/responses.ts";
import type { OpenConnections } from "./connections.ts";
import { addToolStubs, openEndpoint, wantsStream } from "./endpoint.ts";
import { HttpCall } from "./http-call.ts";
import type { CountCarried, Provider } from "./provider.ts";

/** Connects a provider with the chat or the Responses API, neither of which counts tokens. */
export function createOpenai(
  settings: HttpProviderSettings,
  credential: string | undefined,
  connect: OpenConnections,
  clock: Clock,
  countCarried: CountCarried = () => {},
): Provider {
  const { dispatcher, basePath, headers, secrets } = openEndpoint(settings, credential, connect);
  const { api, cacheMarks, dialect, maxTokensName, passMembers, toolStubs } = settings;
  const isResponses = api === "responses";
  return {
    generate(call, reader) {
      const stream = wantsStream(call.request);
      const request = toolStubs ? addToolStubs(call.request) : call.request;
      const { model } = call.route;
      const target = { model, stream, dialect };
      const fit = new Fit();
      const body = isResponses
        ? responses.encodeRequest(request, target, fit)
        : chat.encodeRequest(request, { ...target, cacheMarks, maxTokensName, passMembers }, fit);
      countCarried(fit, request);
      return new HttpCall(
        {
          clock,
          dispatcher,
          path: `${basePath}/${isResponses ? "responses" : "chat/completions"}`,
          headers: [...headers],
          stream,
          codec: isResponses ? responses : chat,
          source: sourceOf(settings, model, request, fit),
          secrets,
        },
        body,
        call,
        reader,
      );
    },
    countTokens: async () => undefined,
    close: () => dispatcher.close(),
    destroy: () => dispatcher.destroy(),
  };
}

function sourceOf(
  { api, cacheMarks, dialect }: HttpProviderSettings,
  model: string,
  request: GenerateRequest,
  { leftOut }: Fit,
): AnswerSource {
  const format = api === "responses" ? Format.RESPONSES : Format.CHAT;
  const wantsNothing = format === Format.CHAT && dialectOf(dialect).reasoning?.length === 0;
  // The signatures of a gateway to native models are those of native providers.
  const hasOrigin = !cacheMarks && !wantsNothing;
  const toolNames = chat.shortNames(request);
  return {
    ...(hasOrigin && { origin: { format, dialect, model } }),
    leftOut,
    ...(toolNames && { toolNames }),
  };
}
