// Providers with the chat completions API: hosted ones, vLLM, Ollama, llama.cpp, OpenRouter.

import type { HttpProviderSettings } from "../config/catalog.ts";
import * as chat from "../formats/chat/chat.ts";
import { addToolStubs, openEndpoint, wantsStream } from "./endpoint.ts";
import { HttpStream } from "./http-stream.ts";
import type { Provider } from "./provider.ts";

/** Connects a provider with the chat API, which cannot count tokens. */
export function createOpenai(
  settings: HttpProviderSettings,
  credential: string | undefined,
): Provider {
  const { dispatcher, basePath, headers, secrets } = openEndpoint(settings, credential);
  const { cacheMarks, maxTokensName, toolStubs } = settings;
  return {
    generate(call) {
      const stream = wantsStream(call.request);
      const request = toolStubs ? addToolStubs(call.request) : call.request;
      const body = chat.encodeRequest(request, {
        model: call.route.model,
        stream,
        cacheMarks,
        maxTokensName,
        omitMaxTokens: call.omitMaxTokens ?? false,
      });
      return new HttpStream(
        {
          dispatcher,
          path: `${basePath}/chat/completions`,
          headers: [...headers],
          body: Buffer.from(JSON.stringify(body)),
          stream,
          codec: chat,
          secrets,
        },
        call,
      );
    },
    countTokens: async () => undefined,
    close: () => dispatcher.close(),
    destroy: () => dispatcher.destroy(),
  };
}
