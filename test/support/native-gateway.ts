// A whole gateway in front of a scripted provider of the native format.

import type { JsonObject } from "@bufbuild/protobuf";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { createSseParser } from "../../src/formats/sse.ts";
import { startTestGateway, type TestGateway } from "./gateway.ts";
import { catalogFor, type ScriptedProvider, startProvider } from "./provider.ts";

export type NativeFixture = {
  gateway: TestGateway;
  provider: ScriptedProvider;
  /** Posts to `/v1/messages`, or to another path, as a client of the older header form. */
  post(body: unknown, more?: PostOptions): Promise<Response>;
  /** The secret of a new key with these controls. */
  keyWith(controls: {
    requestsPerMinute?: number;
    allowedModels?: string[];
  }): Promise<{ secret: string; keyId: string }>;
  stop(): Promise<void>;
};

/** A header that is undefined is not sent. */
export type PostOptions = {
  path?: string;
  headers?: Record<string, string | undefined>;
  signal?: AbortSignal;
};

/** `settings` are further lines of the configuration file. */
export async function startNative(settings = ""): Promise<NativeFixture> {
  const provider = await startProvider();
  const catalog = readCatalogFile(
    `${settings}\n${catalogFor({ real: { kind: "anthropic", url: provider.url } })}`,
  );
  const gateway = await startTestGateway({ catalog });
  return {
    gateway,
    provider,
    post: (body, { path = "/v1/messages", headers = {}, signal } = {}) =>
      fetch(gateway.address + path, {
        method: "POST",
        headers: Object.entries({ ...usualHeaders, "x-api-key": gateway.v1, ...headers }).flatMap(
          ([name, value]): [string, string][] => (value === undefined ? [] : [[name, value]]),
        ),
        body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
        ...(signal && { signal }),
      }),
    async keyWith(controls) {
      const { core, call } = gateway.admin;
      const { secret, key } = await core.keys.createKey(
        { accountId: gateway.accountId, family: Family.V1, ...controls },
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

const usualHeaders = { "content-type": "application/json", "anthropic-version": "2023-06-01" };

/** The smallest request. */
export const ask = {
  model: "haiku",
  max_tokens: 100,
  messages: [{ role: "user", content: "Hello" }],
};

/** The events of a stream as a client reads them. Fails when a name differs from its type. */
export function readEvents(text: string): JsonObject[] {
  const parser = createSseParser();
  return [...parser.push(Buffer.from(text)), ...parser.end()].map(({ event, data }) => {
    const value: JsonObject = JSON.parse(data);
    if (value.type !== event) throw new Error(`event ${event} has type ${value.type}`);
    return value;
  });
}

/** The text that the events of a stream add up to. */
export function textOf(events: readonly JsonObject[]): string {
  return events.map(({ delta }) => Object(delta).text ?? "").join("");
}
