// Azure over its three APIs, and the tokens of Entra.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import type { GenerateRequestSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { attemptOutcomeName } from "../../src/base/attempt-outcomes.ts";
import { createLog } from "../../src/base/log.ts";
import { entraAuthenticator } from "../../src/providers/entra.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { type Azure, azureError, startAzure } from "../support/azure.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import {
  nativeOrigin,
  openProviders,
  providerRequestFor,
  readAll,
  requestOf,
  textOf,
} from "../support/providers.ts";

let azure: Azure;
let providers: ManagedProviders;
let clock: ManualClock;
beforeEach(async () => {
  azure = await startAzure();
  clock = new ManualClock();
});
afterEach(async () => {
  errors.mockClear();
  await providers.close();
  await azure.stop();
});

const log = createLog("silent");
const errors = vi.spyOn(log, "error");
const alarms = () =>
  errors.mock.calls.flatMap(([{ code }, message]) => (code === "provider_alarm" ? message : []));

function open(more: string, env: NodeJS.ProcessEnv = {}): void {
  const catalog = `
models:
  - { id: model-opus-4.6, tier: opus, created_at: 2026-02-05T00:00:00Z, context_tokens: 200000,
      max_output_tokens: 64000, thinking: adaptive,
      routes: [[{ provider: foundry, model: my-gpt }]],
      price: { input: 3, output: 15, thinking: 15, cache_write_5m: 4, cache_write_1h: 6,
               cache_read: 1 } }
providers:
  foundry: { kind: azure, resource: my-resource, base_url: "${azure.provider.url}", ${more} }
`;
  providers = openProviders(catalog, { clock, env, log });
}

const ask = (more: MessageInitShape<typeof GenerateRequestSchema> = {}) =>
  passDuring(() => clock.endPause(2_000), readAll(providers, requestOf("Hi", more)));
const key = "azure-key-0123456789";
const withKey = (more: string) => {
  azure.keys = [key];
  open(`credential_env: KEY, ${more}`, { KEY: key });
};

test.each([
  ["api: messages", "/anthropic/v1/messages"],
  ["api: chat", "/openai/v1/chat/completions"],
  [
    'api: chat, api_version: "2024-10-21"',
    "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21",
  ],
  ["api: responses", "/openai/v1/responses"],
])("%s: requests with a key go to %s", async (settings, path) => {
  withKey(settings);
  for (const stream of [true, false])
    expect(
      textOf((await ask({ origin: nativeOrigin({ streamed: stream }), maxTokens: 100 })).events),
    ).toBe("Hello");
  expect(azure.provider.requests.map((one) => [one.path, one.body.model])).toEqual([
    [path, "my-gpt"],
    [path, "my-gpt"],
  ]);
});

test("Claude in Foundry counts, and gets the betas that it offers", async () => {
  withKey("api: messages");
  expect(await providers.countTokens(providerRequestFor(requestOf("Hi")))).toEqual({
    inputTokens: 21,
  });
  const vendorBeta = "claude-code-20250219,advanced-tool-use-2025-11-20,effort-2025-11-24";
  expect(
    textOf(
      (await ask({ origin: nativeOrigin({ vendorBeta }), extensions: { diagnostics: {} } })).events,
    ),
  ).toBe("Hello");
  expect(azure.provider.requests.at(-1)?.headers["anthropic-beta"]).toBe(
    "advanced-tool-use-2025-11-20,effort-2025-11-24",
  );
});

test("an earlier secret of a client stays out of texts, and a short one is a word", () => {
  const secret = { value: "entra-secret-0123456789" };
  const settings = { tenant: "t", client: "c", secret };
  const call = () => Promise.reject(new Error("no call"));
  const { secrets } = entraAuthenticator(settings, { clock, call, env: {} });
  open("api: chat, auth: entra");
  expect(secrets()).toBe(secrets());
  secret.value = "entra-secret-of-later";
  expect(secrets()).toEqual(["entra-secret-of-later", "entra-secret-0123456789"]);
  secret.value = "short";
  expect(secrets()).not.toContain("short");
});

describe("a token of Entra", () => {
  const entra = "api: messages, auth: entra, tenant: TENANT, client: CLIENT";
  const authority = () => ({ AZURE_AUTHORITY_HOST: azure.provider.url });

  test("is that of a client's secret", async () => {
    open(`${entra}, credential_env: SECRET`, { ...authority(), SECRET: "entra-secret-0123456789" });
    expect(textOf((await ask()).events)).toBe("Hello");
    expect(azure.given).toEqual(["secret"]);
  });

  test("is that of a federated token, which is read anew", async () => {
    const folder = mkdtempSync(join(tmpdir(), "entra-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, "token");
    writeFileSync(file, "federated-token\n");
    open(entra, { ...authority(), AZURE_FEDERATED_TOKEN_FILE: file });
    expect(textOf((await ask()).events)).toBe("Hello");
    writeFileSync(file, "another");
    await clock.advance(3_601_000);
    expect((await ask()).apiError?.reason).toBe("upstream_error");
    expect(alarms()[0]).toContain("AADSTS7000215: Not you.");
    expect(azure.given).toEqual(["federated"]);
  });

  test("is that of the machine", async () => {
    open("api: chat, auth: entra", {
      AZURE_FEDERATED_TOKEN_FILE: "",
      IDENTITY_ENDPOINT: `${azure.provider.url}/identity`,
      IDENTITY_HEADER: "header-1",
    });
    expect(textOf((await ask()).events)).toBe("Hello");
    expect(azure.given).toEqual(["machine"]);
  });

  test("that is refused is replaced within the call", async () => {
    open(`${entra}, credential_env: SECRET`, { ...authority(), SECRET: "entra-secret-0123456789" });
    await ask();
    azure.tokens.clear();
    await clock.advance(10_000);
    expect(textOf((await ask()).events)).toBe("Hello");
    expect(azure.given).toEqual(["secret", "secret"]);
  });
});

test.each([
  [429, "429", "overloaded failed 429", null],
  [400, "content_filter", "upstream_refused refused 400", null],
  [401, "401", "upstream_error failed 401", /refuses our credential/],
  [404, "DeploymentNotFound", "upstream_error failed 404", /has no model my-gpt/],
  [500, "InternalServerError", "upstream_error failed 500", null],
] as const)("over chat, %i %s is %s", async (status, code, expected, alarm) => {
  withKey("api: chat");
  const headers = {
    "content-type": "application/json",
    "retry-after-ms": "1500",
    "retry-after": "9",
  };
  const script = azureError(status, code, { headers });
  azure.scripts.push(script, script, script);
  const { apiError, ask: asked } = await ask();
  const [first] = asked.run?.attempts() ?? [];
  expect(`${apiError?.reason} ${attemptOutcomeName(first?.outcome ?? 0)} ${first?.status}`).toBe(
    expected,
  );
  if (alarm) expect(alarms()[0]).toMatch(alarm);
  else expect(alarms()).toEqual([]);
});
