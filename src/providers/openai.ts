// Providers with the APIs of OpenAI: hosted ones, vLLM, Ollama, llama.cpp, OpenRouter.

import type { HttpProviderSettings } from "../config/catalog.ts";
import * as chat from "../formats/chat/chat.ts";
import * as responses from "../formats/responses/responses.ts";
import { addToolStubs, openEndpoint, wantsStream } from "./endpoint.ts";
import { HttpStream } from "./http-stream.ts";
import type { Provider } from "./provider.ts";

/** Connects a provider with the chat or the Responses API, neither of which counts tokens. */
export function createOpenai(
  settings: HttpProviderSettings,
  credential: string | undefined,
): Provider {
  const { dispatcher, basePath, headers, secrets } = openEndpoint(settings, credential);
  const { api, cacheMarks, maxTokensName, toolStubs } = settings;
  const isResponses = api === "responses";
  return {
    generate(call) {
      const stream = wantsStream(call.request);
      const request = toolStubs ? addToolStubs(call.request) : call.request;
      const { model } = call.route;
      const target = { model, stream, omitMaxTokens: call.omitMaxTokens ?? false };
      const body = isResponses
        ? responses.encodeRequest(request, target)
        : chat.encodeRequest(request, { ...target, cacheMarks, maxTokensName });
      return new HttpStream(
        {
          dispatcher,
          path: `${basePath}/${isResponses ? "responses" : "chat/completions"}`,
          headers: [...headers],
          stream,
          codec: isResponses ? responses : chat,
          secrets,
        },
        body,
        call,
      );
    },
    countTokens: async () => undefined,
    close: () => dispatcher.close(),
    destroy: () => dispatcher.destroy(),
  };
}
