// Vertex AI, and the tokens of Google.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { GenerateRequestSchema } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { attemptOutcomeName } from "../../src/base/attempt-outcomes.ts";
import { createLog } from "../../src/base/log.ts";
import { Outbound } from "../../src/base/outbound.ts";
import type { ManagedProviders } from "../../src/providers/providers.ts";
import { type TokenCall, tokenCall } from "../../src/providers/token-call.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import {
  attemptsOf,
  nativeOrigin,
  openProviders,
  providerRequestFor,
  readAll,
  requestOf,
  textOf,
} from "../support/providers.ts";
import { googleError, startVertex, type Vertex } from "../support/vertex.ts";

let vertex: Vertex;
let providers: ManagedProviders;
let clock: ManualClock;
let folder: string;
beforeEach(async () => {
  vertex = await startVertex();
  clock = new ManualClock();
  folder = mkdtempSync(join(tmpdir(), "google-"));
});
afterEach(async () => {
  for (const spy of [errors, warnings]) spy.mockClear();
  await providers.close();
  await vertex.stop();
  rmSync(folder, { recursive: true });
});

const log = createLog("silent");
const errors = vi.spyOn(log, "error");
const warnings = vi.spyOn(log, "warn");
const alarms = () =>
  errors.mock.calls.flatMap(([{ code }, message]) => (code === "provider_alarm" ? message : []));

function write(content: object): string {
  const path = join(folder, "google.json");
  writeFileSync(path, JSON.stringify(content));
  return `, credential_file: ${JSON.stringify(path)}`;
}

function open(more: string, env: NodeJS.ProcessEnv = {}): void {
  const catalog = `
models:
  - { id: model-opus-4.6, tier: opus, created_at: 2026-02-05T00:00:00Z, context_tokens: 200000,
      max_output_tokens: 64000, thinking: adaptive, routes: [[{ provider: vertex, model: m@1 }]],
      price: { input: 3, output: 15, thinking: 15, cache_write_5m: 4, cache_write_1h: 6,
               cache_read: 1 } }
providers:
  vertex: { kind: vertex, project: my-project, location: global,
            base_url: "${vertex.provider.url}"${more} }
`;
  // Of impersonation alone, the address is Google's own.
  const direct = tokenCall(new Outbound());
  const call: TokenCall = (request) => {
    const url = request.url.replace("https://iamcredentials.googleapis.com", vertex.provider.url);
    return direct({ ...request, url });
  };
  providers = openProviders(catalog, { clock, env, log, call });
}

const ask = (more: MessageInitShape<typeof GenerateRequestSchema> = {}) =>
  passDuring(() => clock.endPause(2_000), readAll(providers, requestOf("Hi", more)));
const models = "/v1/projects/my-project/locations/global/publishers/anthropic/models";

test("requests and counts have Google's paths, version and members", async () => {
  open(write(vertex.account));
  for (const stream of [true, false])
    expect(
      textOf((await ask({ origin: nativeOrigin({ streamed: stream }), maxTokens: 100 })).events),
    ).toBe("Hello");
  expect(await providers.countTokens(providerRequestFor(requestOf("Hi")))).toEqual({
    inputTokens: 21,
  });
  const sent = vertex.provider.requests.filter(({ path }) => path !== "/token");
  expect(sent.map(({ path }) => path)).toEqual([
    `${models}/m@1:streamRawPredict`,
    `${models}/m@1:rawPredict`,
    `${models}/count-tokens:rawPredict`,
  ]);
  expect(sent[2]?.body).toMatchObject({ model: "m@1" });
});

test("betas have Google's names, in a header, and the others are left out", async () => {
  open(write(vertex.account));
  const vendorBeta = "advanced-tool-use-2025-11-20,effort-2025-11-24,context-1m-2025-08-07";
  expect(textOf((await ask({ origin: nativeOrigin({ vendorBeta }) })).events)).toBe("Hello");
  const { headers } = vertex.provider.requests.at(-1) ?? {};
  expect(headers?.["anthropic-beta"]).toBe("tool-search-tool-2025-10-19,context-1m-2025-08-07");
});

describe("a token", () => {
  const ways: readonly [way: string, settings: () => string, given: string[]][] = [
    ["of a service account's key", () => write(vertex.account), ["key"]],
    ["of another identity", () => write(vertex.federated), ["federated", "impersonated"]],
    ["of the machine", () => "", ["machine"]],
    [
      "of an account that the machine speaks for",
      () => ", impersonate: other@my-project.iam.gserviceaccount.com",
      ["machine", "impersonated"],
    ],
  ];
  test.each(ways)("%s", async (_, settings, given) => {
    const host = new URL(vertex.provider.url).host;
    open(settings(), { GCE_METADATA_HOST: host });
    expect(textOf((await ask()).events)).toBe("Hello");
    expect(vertex.given).toEqual(given);
  });

  test("of an identity at AWS, which its signature alone proves", async () => {
    const accessKeyId = "AKIAMACHINE";
    const [known, wrong] = [{ accessKeyId, secretAccessKey: "own" }, "another"];
    vertex.awsCredentials = [known];
    vi.stubEnv("AWS_ACCESS_KEY_ID", accessKeyId);
    for (const secret of [wrong, known.secretAccessKey]) {
      vi.stubEnv("AWS_SECRET_ACCESS_KEY", secret);
      open(write(vertex.fromAws));
      const { events, apiError } = await ask();
      if (secret === wrong) expect(apiError?.reason).toBe("upstream_error");
      else expect(textOf(events)).toBe("Hello");
      if (secret === wrong) await providers.close();
    }
    vi.unstubAllEnvs();
    expect(vertex.given).toEqual(["aws"]);
  });

  test("of AWS is not asked for without a zone", async () => {
    const source = Object(vertex.fromAws.credential_source);
    const zoneless = { ...source, region_url: `${vertex.provider.url}/subject` };
    open(write({ ...vertex.fromAws, credential_source: zoneless }));
    expect((await ask()).apiError?.reason).toBe("upstream_error");
    expect(alarms()[0]).toContain("region_url answers without a zone");
  });

  test("is fetched once for 1,000 requests at its end", async () => {
    open(write(vertex.account));
    await ask();
    await clock.advance(3_600_000);
    const all = await Promise.all(
      Array.from({ length: 1_000 }, () => readAll(providers, requestOf("Hi"))),
    );
    expect(all.filter(({ events }) => textOf(events) === "Hello")).toHaveLength(1_000);
    expect(vertex.given).toEqual(["key", "key"]);
  });

  test("serves until its end while no other can be had, and the file may change", async () => {
    const settings = write(vertex.account);
    open(settings);
    await ask();
    write({ type: "authorized_user" });
    await clock.advance(3_599_000);
    expect(textOf((await ask()).events)).toBe("Hello");
    await clock.advance(61_000);
    expect((await ask()).apiError?.reason).toBe("upstream_error");
    expect(alarms()[0]).toContain("type authorized_user is not taken");
    write(vertex.federated);
    await clock.advance(61_000);
    expect(textOf((await ask()).events)).toBe("Hello");
    expect(vertex.given).toEqual(["key", "federated", "impersonated"]);
  });

  test("that is refused is replaced within the call", async () => {
    open(write(vertex.account));
    await ask();
    vertex.tokens.clear();
    await clock.advance(10_000);
    expect(attemptsOf(await ask())).toEqual(["vertex delivered 200"]);
    expect(vertex.given).toEqual(["key", "key"]);
  });

  test("is in no error, no reason and no line of the log", async () => {
    open(write(vertex.account));
    await ask();
    const [token = ""] = vertex.tokens;
    vertex.scripts.push(googleError(500, "INTERNAL", { message: `token ${token}` }));
    vertex.scripts.push(googleError(400, "INVALID_ARGUMENT", { message: `token ${token}` }));
    const { apiError } = await ask();
    expect(apiError?.reason).toBe("upstream_refused");
    const lines = [...errors.mock.calls, ...warnings.mock.calls];
    const said = JSON.stringify([apiError?.facts, providers.conditions(), lines]);
    expect(said).toContain("[redacted]");
    expect(said).not.toContain(token.slice(5));
  });
});

const quota = { details: [{ violations: [{ quotaId: "GenerateRequestsPerDayPerProject" }] }] };
const retry = { details: [{ "@type": "type.googleapis.com/RetryInfo", retryDelay: "34.4s" }] };
test.each([
  [429, "RESOURCE_EXHAUSTED", {}, "overloaded failed 429", null],
  [429, "RESOURCE_EXHAUSTED", retry, "overloaded failed 429", null],
  [429, "RESOURCE_EXHAUSTED", quota, "overloaded failed 429", null],
  [400, "INVALID_ARGUMENT", {}, "upstream_refused refused 400", null],
  [400, "FAILED_PRECONDITION", {}, "upstream_error failed 400", /our account: .*the reason/],
  [403, "PERMISSION_DENIED", {}, "upstream_error failed 403", /our account: .*the reason/],
  [404, "NOT_FOUND", {}, "upstream_error failed 404", /has no model m@1/],
  [504, "DEADLINE_EXCEEDED", {}, "timeout timeout 504", null],
  [500, "INTERNAL", {}, "upstream_error failed 500", null],
  [503, "UNAVAILABLE", {}, "upstream_error failed 503", null],
] as const)("%i %s %o is %s", async (status, name, more, expected, alarm) => {
  open(write(vertex.account));
  const script = googleError(status, name, more);
  vertex.scripts.push(script, script, script);
  const { apiError, ask: asked } = await ask();
  const [first] = asked.run?.attempts() ?? [];
  expect(`${apiError?.reason} ${attemptOutcomeName(first?.outcome ?? 0)} ${first?.status}`).toBe(
    expected,
  );
  if (alarm) expect(alarms()[0]).toMatch(alarm);
  else expect(alarms()).toEqual([]);
  const pauses = more === retry || more === quota ? ["m@1"] : [];
  expect(providers.conditions()).toMatchObject([{ waitingModels: pauses }]);
  await clock.advance(more === retry ? 34_400 : 599_000);
  if (more === retry) expect(providers.conditions()).toMatchObject([{ waitingModels: [] }]);
});
