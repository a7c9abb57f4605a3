// Recorded requests of coding tools and SDKs at every surface of the clouds. Each stand-in refuses
// a request for one member or beta that it does not know.

import { readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import type { JsonObject } from "@bufbuild/protobuf";
import { jsonSchema, streamText, tool } from "ai";
import fc from "fast-check";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { defaultCatalog, readCatalogFile } from "../../src/config/catalog.ts";
import { Fit } from "../../src/formats/fit.ts";
import * as native from "../../src/formats/native/native.ts";
import * as responses from "../../src/formats/responses/responses.ts";
import { azureSurface } from "../../src/providers/azure.ts";
import { bedrockSurface } from "../../src/providers/bedrock.ts";
import type { Surface } from "../../src/providers/surface.ts";
import { vertexSurface } from "../../src/providers/vertex.ts";
import { startAzure } from "../support/azure.ts";
import { startBedrock } from "../support/bedrock.ts";
import { ManualClock } from "../support/clock.ts";
import { nativeStream } from "../support/provider-answers.ts";
import { openProviders, providerRequestFor, readAll, textOf } from "../support/providers.ts";
import { anyBody } from "../support/samples/native-bodies.ts";
import { startVertex } from "../support/vertex.ts";

const read = (path: string): Recorded =>
  JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
type Recorded = {
  readonly client: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: JsonObject;
};

function nativeRequest({ headers = {}, body }: Omit<Recorded, "client">): GenerateRequest {
  const [version, beta] = [headers["anthropic-version"], headers["anthropic-beta"]];
  return native.decodeRequest(body, { version: version ?? "", beta: beta ?? "" });
}

/** The request of the AI SDK for a step with a tool. */
async function aiSdkRequest(): Promise<GenerateRequest> {
  const sent = Promise.withResolvers<Omit<Recorded, "client">>();
  const { writes = [], headers = {} } = nativeStream();
  const vendor = createAnthropic({
    apiKey: "sk-test",
    async fetch(_, init) {
      const given = Object.fromEntries(new Headers(init?.headers));
      sent.resolve({ headers: given, body: JSON.parse(String(init?.body)) });
      return new Response(writes.join(""), { headers });
    },
  });
  const inputSchema = jsonSchema({ type: "object", properties: { city: { type: "string" } } });
  const result = streamText({
    model: vendor("claude-opus-4-6"),
    prompt: "What is the weather in Rome?",
    tools: { weather: tool({ description: "The weather of a city", inputSchema }) },
    providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 2_000 } } },
  });
  await result.text;
  return nativeRequest(await sent.promise);
}

const codex = "../formats/responses/fixtures/codex-sonnet.json";
const clients: readonly [name: string, request: () => Promise<GenerateRequest>][] = [
  ["Claude Code", async () => nativeRequest(read("./fixtures/claude-code.json"))],
  ["Codex", async () => responses.decodeRequest(read(codex).body)],
  ["the AI SDK", aiSdkRequest],
];

const keys = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "secret-of-the-operator-0123456789" };

async function bedrock(settings: string) {
  const cloud = await startBedrock();
  cloud.credentials = [keys];
  // Mantle knows more than runtime.
  if (settings.includes("mantle")) cloud.betas.push("claude-code", "structured-outputs");
  vi.stubEnv("AWS_ACCESS_KEY_ID", keys.accessKeyId);
  vi.stubEnv("AWS_SECRET_ACCESS_KEY", keys.secretAccessKey);
  onTestFinished(() => void vi.unstubAllEnvs());
  return { cloud, settings: `kind: bedrock, region: us-east-1, ${settings}` };
}

async function vertex() {
  const cloud = await startVertex();
  cloud.tokens.add("token-0123456789");
  const settings = "kind: vertex, project: my-project, location: global, credential_env: KEY";
  return { cloud, settings };
}

async function azure(settings: string) {
  const cloud = await startAzure();
  cloud.keys = ["token-0123456789"];
  return { cloud, settings: `kind: azure, resource: r, credential_env: KEY, ${settings}` };
}

const surfaces: readonly [name: string, open: () => ReturnType<typeof bedrock | typeof azure>][] = [
  ["bedrock, messages", () => bedrock("api: messages")],
  ["bedrock, mantle", () => bedrock("endpoint: mantle")],
  ["bedrock, invoke", () => bedrock("api: invoke")],
  ["azure, messages", () => azure("api: messages")],
  ["azure, chat", () => azure("api: chat")],
  ["azure, responses", () => azure("api: responses")],
];

describe.each([...surfaces, ["vertex", vertex] as const])("%s", (_, open) => {
  test.each(clients)("answers the recorded request of %s at once", async (_client, request) => {
    const { cloud, settings } = await open();
    onTestFinished(() => cloud.stop());
    const url = cloud.provider.url;
    const providers = openProviders(
      `
models:
  - { id: m, tier: opus, created_at: 2026-02-05T00:00:00Z, context_tokens: 200000,
      max_output_tokens: 64000, thinking: adaptive, routes: [[{ provider: cloud, model: m-1 }]],
      price: { input: 3, output: 15, thinking: 15, cache_write_5m: 4, cache_write_1h: 6,
               cache_read: 1 } }
providers:
  cloud: { ${settings}, base_url: "${url}" }
`,
      { env: { KEY: "token-0123456789" } },
    );
    onTestFinished(() => providers.close());
    const given = await request();
    const asked = providerRequestFor({ ...given, model: "m", maxTokens: 8_000 });
    const outcome = await readAll(providers, asked);
    expect([outcome.apiError, textOf(outcome.events)]).toEqual([undefined, "Hello"]);
    expect(cloud.provider.requests).toHaveLength(1);
  });
});

const tools = { clock: new ManualClock(), report: () => {} };
const places: readonly [name: string, surface: Surface, moved: string[], isFolded: boolean][] = [
  ["bedrock, messages", claudeAt("kind: bedrock, region: us-east-1"), [], true],
  ["bedrock, mantle", claudeAt("kind: bedrock, region: us-east-1, endpoint: mantle"), [], false],
  [
    "bedrock, invoke",
    claudeAt("kind: bedrock, region: us-east-1, api: invoke"),
    ["model", "stream"],
    true,
  ],
  ["vertex", claudeAt("kind: vertex, project: my-project, location: eu"), ["model"], false],
  ["azure, messages", claudeAt("kind: azure, resource: r, auth: entra"), [], false],
];

function claudeAt(provider: string): Surface {
  const text = `${defaultCatalog().replace(/^providers:$/m, `providers:\n  one: { ${provider} }`)}`;
  const { one: settings } = readCatalogFile(text).providers;
  if (settings?.kind === "bedrock") return bedrockSurface(settings, tools);
  if (settings?.kind === "vertex") return vertexSurface(settings, tools);
  if (settings?.kind === "azure") return azureSurface(settings, tools);
  throw new Error(`${provider} is at no cloud`);
}

/** Members of every cloud, by the documents of this format. */
const everywhere = [
  ...["messages", "system", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences"],
  ...["tools", "tool_choice", "thinking", "output_config", "cache_control", "metadata"],
  ...["model", "stream"],
];
const added = ["anthropic_version", "anthropic_beta"];

test.each(places)(
  "any body reaches %s but for what the cloud has not",
  (_, surface, moved, folds) => {
    let taken = 0;
    fc.assert(
      fc.property(anyBody, (generated) => {
        let request: GenerateRequest;
        try {
          request = nativeRequest({ body: { ...generated, model: "opus", max_tokens: 50 } });
        } catch {
          // The gateway refuses it.
          return;
        }
        taken++;
        const target = {
          model: "m-1",
          stream: true,
          foldSystem: folds,
          dialect: "anthropic",
        } as const;
        const encoded = native.encodeRequest(request, target);
        const route = { model: "m-1", systemEntries: "forward" } as const;
        const { body } = surface.generate({ request, route }, true, new Fit());
        const expected = Object.entries(encoded).filter(
          ([name]) => everywhere.includes(name) && !moved.includes(name),
        );
        const sent = Object.entries(body).filter(([name]) => !added.includes(name));
        expect(JSON.stringify(sent)).toBe(JSON.stringify(expected));
      }),
      { numRuns: 200 },
    );
    expect(taken).toBeGreaterThan(50);
  },
);
