// A whole gateway in front of one fake provider, which speaks one of the three formats.

import type { JsonObject } from "@bufbuild/protobuf";
import OpenAI from "openai";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { createSseParser } from "../../src/formats/sse.ts";
import { catalogFor } from "./catalog.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./gateway.ts";
import { type FakeProvider, type Respond, type Script, startFakeProvider } from "./provider.ts";
import {
  type AnswerContent,
  chatAnswer,
  chatStream,
  nativeAnswer,
  nativeStream,
  responsesAnswer,
  responsesStream,
} from "./provider-answers.ts";

/** Format of the provider. */
export type ProviderFormat = "native" | "chat" | "responses";
export const providerFormats: readonly ProviderFormat[] = ["native", "chat", "responses"];

/** The path of the requests that a provider of each format receives. */
export const providerPaths: Readonly<Record<ProviderFormat, string>> = {
  native: "/v1/messages",
  chat: "/v1/chat/completions",
  responses: "/v1/responses",
};

const answers = {
  native: [nativeStream, nativeAnswer],
  chat: [chatStream, chatAnswer],
  responses: [responsesStream, responsesAnswer],
} as const;

export type GatewayWithProvider = {
  readonly gateway: TestGateway;
  readonly provider: FakeProvider;
  /** An answer in the provider's format, streamed when the gateway asks for a stream. */
  reply(content: AnswerContent, more?: Script): Respond;
  /** Posts to `/v1/messages`, or to another path, with the headers of the native format. */
  post(body: unknown, more?: PostOptions): Promise<Response>;
  /** Posts to the chat endpoint, or to another path, with the headers of the chat format. */
  postChat(body: unknown, path?: string): Promise<Response>;
  /** The secret of a new key with these controls. */
  keyWith(controls: {
    requestsPerMinute?: number;
    allowedModels?: string[];
  }): Promise<{ secret: string; keyId: string }>;
  stop(): Promise<void>;
};

export type PostOptions = {
  path?: string;
  /** A header that is undefined is not sent. */
  headers?: Record<string, string | undefined>;
  signal?: AbortSignal;
};

/** `settings` are further lines of the configuration file. `split`: a facade and a core. */
export async function startGatewayWithProvider(
  format: ProviderFormat,
  settings = "",
  { split = false, clock }: Pick<TestGatewayOptions, "split" | "clock"> = {},
): Promise<GatewayWithProvider> {
  const provider = await startFakeProvider();
  const kind = format === "native" ? "anthropic" : "openai";
  const real = {
    kind,
    url: provider.url,
    ...(format === "responses" && { more: "api: responses" }),
  } as const;
  const gateway = await startTestGateway({
    split,
    catalog: readCatalogFile(`${settings}\n${catalogFor({ real })}`),
    ...(clock && { clock }),
  });
  const [stream, plain] = answers[format];
  return {
    gateway,
    provider,
    reply: (content, more) => (request) =>
      request.body.stream === true ? stream(content, more) : plain(content, more),
    post: (body, { path = "/v1/messages", headers = {}, signal } = {}) =>
      fetch(gateway.address + path, {
        method: "POST",
        headers: Object.entries({ ...nativeHeaders, "x-api-key": gateway.v1, ...headers }).flatMap(
          ([name, value]): [string, string][] => (value === undefined ? [] : [[name, value]]),
        ),
        body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
        ...(signal && { signal }),
      }),
    postChat: (body, path = "/v1/chat/completions") =>
      fetch(gateway.address + path, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${gateway.v1}` },
        body: JSON.stringify(body),
      }),
    async keyWith(controls) {
      const { core, call } = gateway.admin;
      const { secret, key } = await core.keys.createKey(
        { accountId: gateway.accountId, family: Family.V1, settings: { name: "k", ...controls } },
        call,
      );
      return { secret, keyId: key?.keyId ?? "" };
    },
    async stop() {
      await gateway.stop();
      await provider.stop();
    },
  };
}

const nativeHeaders = { "content-type": "application/json", "anthropic-version": "2023-06-01" };

/** The smallest request of the native format. */
export const smallBody = {
  model: "haiku",
  max_tokens: 100,
  messages: [{ role: "user", content: "Hello" }],
};

/** The official client of the chat format. No retries by default, so that every failure shows. */
export function openai(
  { gateway }: GatewayWithProvider,
  more: { apiKey?: string; maxRetries?: number; fetch?: typeof fetch } = {},
): OpenAI {
  return new OpenAI({
    apiKey: gateway.v1,
    baseURL: `${gateway.address}/v1`,
    maxRetries: 0,
    ...more,
  });
}

/** The events of a native stream. Throws when the name of an event differs from its type. */
export function readEvents(text: string): JsonObject[] {
  const parser = createSseParser();
  return [...parser.push(Buffer.from(text)), ...parser.end()].map(({ event, data }) => {
    const value: JsonObject = JSON.parse(data);
    if (value.type !== event) throw new Error(`event ${event} has type ${value.type}`);
    return value;
  });
}

/** The joined text of the deltas of a native stream. */
export function textOf(events: readonly JsonObject[]): string {
  return events.map(({ delta }) => Object(delta).text ?? "").join("");
}
