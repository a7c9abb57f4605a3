// Routes by what a request needs of its provider.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Format, Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { GenerateRequestSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { catalogFor } from "../support/catalog.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { chatStream, nativeStream } from "../support/provider-answers.ts";
import {
  attemptsOf,
  openProviders,
  providerRequestFor,
  readAll,
  requestOf,
} from "../support/providers.ts";

let provider: FakeProvider;
let providers: ManagedProviders;
beforeEach(async () => {
  provider = await startFakeProvider();
});
afterEach(async () => {
  await providers.close();
  await provider.stop();
});

const needs: readonly [string, string, MessageInitShape<typeof GenerateRequestSchema>][] = [
  ["structured_output", "output_config.format", { outputConfig: { format: { type: "x" } } }],
  [
    "structured_output",
    "response_format",
    { origin: { format: Format.CHAT }, outputConfig: { format: { type: "x" } } },
  ],
  ["strict_tools", "tools[0].strict", { tools: [{ name: "f", extensions: { strict: true } }] }],
  ["web_search", "tools[0].type", { tools: [{ name: "s", type: "web_search_20250305" }] }],
  ["server_tools", "tools[0].type", { tools: [{ name: "s", type: "web_fetch_20250910" }] }],
  ["server_tools", "mcp_servers", { extensions: { mcp_servers: [{ type: "url" }] } }],
  ["fast", "speed", { extensions: { speed: "fast" } }],
  ["geo", "inference_geo", { extensions: { inference_geo: "us" } }],
  [
    "url_sources",
    "messages[0]",
    {
      messages: [
        {
          role: Role.USER,
          content: [
            {
              kind: {
                case: "image",
                value: { source: { kind: { case: "url", value: "https://example.com/a.png" } } },
              },
            },
          ],
        },
      ],
    },
  ],
];

const two = (more: string) =>
  catalogFor({
    first: { kind: "anthropic", url: provider.url, more },
    second: { kind: "anthropic", url: provider.url },
  });

test.each(needs)(
  "a route without %s is skipped for a request with %s",
  async (feature, _, more) => {
    providers = openProviders(two(`features: { ${feature}: false }`));
    provider.always(nativeStream());
    expect(attemptsOf(await readAll(providers, "Hi"))).toEqual(["first delivered 200"]);
    expect(attemptsOf(await readAll(providers, requestOf("Hi", more)))).toEqual([
      "second delivered 200",
    ]);
  },
);

test.each(needs)("without %s at any provider, %s is refused", async (feature, member, more) => {
  const settings = `features: { ${feature}: false }`;
  providers = openProviders(
    catalogFor({ only: { kind: "anthropic", url: provider.url, more: settings } }),
  );
  const { apiError, ask } = await readAll(providers, requestOf("Hi", more));
  expect([apiError?.reason, apiError?.facts.field]).toEqual(["feature_not_offered", member]);
  expect(apiError?.message).toBe(`${member}: no provider of this model has it.`);
  expect([provider.requests.length, ask.run?.attempts()]).toEqual([0, []]);
});

test("a count comes from the first provider of the model that can count", async () => {
  providers = openProviders(
    catalogFor({
      chat: { kind: "openai", url: provider.url },
      native: { kind: "anthropic", url: provider.url },
    }),
  );
  provider.play({
    headers: { "content-type": "application/json" },
    writes: ['{"input_tokens":42}'],
  });
  expect(await providers.countTokens(providerRequestFor(requestOf("Hi")))).toEqual({
    inputTokens: 42,
  });
  expect(provider.requests.map(({ path }) => path)).toEqual(["/v1/messages/count_tokens"]);
  provider.play(chatStream());
  expect(attemptsOf(await readAll(providers, "Hi"))).toEqual(["chat delivered 200"]);
});
