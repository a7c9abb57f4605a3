// A gateway with one scripted provider behind all its models, in one of the two formats.

import OpenAI from "openai";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { startTestGateway, type TestGateway } from "./gateway.ts";
import {
  type AnswerContent,
  type Choose,
  catalogFor,
  chatAnswer,
  chatStream,
  nativeAnswer,
  nativeStream,
  type Script,
  type ScriptedProvider,
  startProvider,
} from "./provider.ts";

/** Format of the provider. */
export type ProviderFormat = "native" | "chat";
export const providerFormats: readonly ProviderFormat[] = ["native", "chat"];

export type Stage = {
  readonly gateway: TestGateway;
  readonly provider: ScriptedProvider;
  /** An answer in the provider's format, streamed when the gateway asks for a stream. */
  reply(content: AnswerContent, more?: Script): Choose;
  stop(): Promise<void>;
};

export async function openStage(format: ProviderFormat): Promise<Stage> {
  const provider = await startProvider();
  const kind = format === "native" ? "anthropic" : "openai";
  const gateway = await startTestGateway({
    catalog: readCatalogFile(catalogFor({ real: { kind, url: provider.url } })),
  });
  const [stream, plain] =
    format === "native" ? [nativeStream, nativeAnswer] : [chatStream, chatAnswer];
  return {
    gateway,
    provider,
    reply: (content, more) => (request) =>
      request.body.stream === true ? stream(content, more) : plain(content, more),
    async stop() {
      await gateway.stop();
      await provider.stop();
    },
  };
}

/**
 * The official client of the chat format. `maxRetries` 0 unless said, so that nothing fails twice
 * unseen.
 */
export function openai(
  { gateway }: Stage,
  more: { apiKey?: string; maxRetries?: number; fetch?: typeof fetch } = {},
): OpenAI {
  return new OpenAI({
    apiKey: gateway.v1,
    baseURL: `${gateway.address}/v1`,
    maxRetries: 0,
    ...more,
  });
}

/** Posts a body to the chat endpoint. */
export function post(
  { gateway }: Stage,
  body: unknown,
  path = "/v1/chat/completions",
): Promise<Response> {
  return fetch(gateway.address + path, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${gateway.v1}` },
    body: JSON.stringify(body),
  });
}
