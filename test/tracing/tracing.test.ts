// Traces of whole gateways: from the HTTP listener of a facade to the provider.

import { randomBytes } from "node:crypto";
import { afterEach, expect, test, vi } from "vitest";
import { Role } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Clock } from "../../src/base/clock.ts";
import { createLog } from "../../src/base/log.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { readConfig, type TracingSettings } from "../../src/config/environment.ts";
import { Tracer } from "../../src/tracing/tracing.ts";
import { catalogFor } from "../support/catalog.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import { type CollectedSpan, type Collector, startCollector } from "../support/collector.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, Gate, startFakeProvider } from "../support/provider.ts";
import { nativeAnswer, nativeEvents, nativeStream } from "../support/provider-answers.ts";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

type Stage = { gateway: TestGateway; provider: FakeProvider; collector: Collector };

async function startStage(
  env: NodeJS.ProcessEnv,
  { split = false, tells = true, clock }: { split?: boolean; tells?: boolean; clock?: Clock } = {},
): Promise<Stage> {
  const collector = await startCollector();
  const provider = await startFakeProvider();
  provider.always(nativeAnswer({ text: ["Good day"] }));
  const more = `trace_headers: ${tells}`;
  const gateway = await startTestGateway({
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.address}/`, ...env },
    catalog: readCatalogFile(catalogFor({ real: { kind: "anthropic", url: provider.url, more } })),
    split,
    ...(clock && { clock }),
  });
  cleanups.push(
    () => collector.stop(),
    () => provider.stop(),
  );
  return { gateway, provider, collector };
}

const traceId = randomBytes(16).toString("hex");
const clientSpan = randomBytes(8).toString("hex");

function pay(
  { gateway }: Stage,
  headers: Record<string, string> = {},
  { stream = false, signal }: { stream?: boolean; signal?: AbortSignal } = {},
): Promise<Response> {
  return fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": gateway.v1,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
      ...headers,
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 20,
      stream,
      messages: [{ role: "user", content: "the secret of the prompt" }],
    }),
    ...(signal && { signal }),
  });
}

function named(spans: readonly CollectedSpan[], name: string): CollectedSpan {
  const found = spans.filter((span) => span.name === name);
  if (found.length !== 1 || !found[0]) throw new Error(`${found.length} spans ${name}`);
  return found[0];
}

for (const split of [false, true]) {
  test(`a trace goes from the client ${split ? "through a facade and a core" : "through one process"} to the provider`, async () => {
    const stage = await startStage({ OTEL_TRACES_SAMPLER: "parentbased_always_off" }, { split });
    const tracestate = "vendor=of-the-client,other=1";
    const given = { traceparent: `00-${traceId}-${clientSpan}-01`, tracestate };
    const answer = await pay(stage, given);
    expect(answer.status).toBe(200);
    await answer.text();
    await stage.gateway.stop();
    const { spans } = stage.collector;
    expect(spans.map(({ name }) => name).sort()).toEqual([
      "POST /v1/messages",
      "chat model-haiku-4.5",
      "hold",
      "settle",
    ]);
    expect(spans.every((span) => span.traceId === traceId)).toBe(true);
    const server = named(spans, "POST /v1/messages");
    const chat = named(spans, "chat model-haiku-4.5");
    expect(server.parentSpanId).toBe(clientSpan);
    for (const name of ["hold", "settle", "chat model-haiku-4.5"])
      expect(named(spans, name).parentSpanId).toBe(server.spanId);
    expect(stage.provider.requests[0]?.headers).toMatchObject({
      traceparent: `00-${traceId}-${chat.spanId}-01`,
      tracestate,
    });
    expect(spans.map(({ traceState }) => traceState)).toEqual(spans.map(() => tracestate));
    expect([server.kind, chat.kind, named(spans, "hold").kind]).toEqual([2, 3, 1]);
    expect(server.attributes).toMatchObject({
      "http.request.method": "POST",
      "http.route": "/v1/messages",
      "http.response.status_code": 200,
      "gateway.request_id": answer.headers.get("request-id"),
      "gateway.account_id": stage.gateway.accountId,
    });
    expect(chat.attributes).toMatchObject({
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": "real",
      "gen_ai.request.model": "model-haiku-4.5",
      "gen_ai.response.model": "provider-model",
      "gen_ai.request.max_tokens": 20,
      "server.address": "127.0.0.1",
      "server.port": Number(new URL(stage.provider.url).port),
      "gateway.attempt": 1,
      "gen_ai.response.finish_reasons": ["end_turn"],
    });
    expect(Number(chat.attributes["gen_ai.usage.output_tokens"])).toBeGreaterThan(0);
    for (const { startNanos, endNanos } of spans) {
      expect(startNanos).toBeGreaterThanOrEqual(server.startNanos);
      expect(endNanos).toBeGreaterThanOrEqual(startNanos);
    }
    const text = JSON.stringify(spans.map(({ attributes }) => attributes));
    for (const secret of ["the secret of the prompt", "Good day", stage.gateway.v1])
      expect(text).not.toContain(secret);
  });
}

test("a client that does not sample is not traced, nor is it decided again in the core", async () => {
  const stage = await startStage({ OTEL_TRACES_SAMPLER: "parentbased_always_on" }, { split: true });
  await (await pay(stage, { traceparent: `00-${traceId}-${clientSpan}-00` })).text();
  await stage.gateway.stop();
  expect(stage.collector.spans).toEqual([]);
  expect(stage.provider.requests[0]?.headers.traceparent).toBeUndefined();
});

test("a provider hears of no trace unless it is configured to", async () => {
  const stage = await startStage({ OTEL_TRACES_SAMPLER: "always_on" }, { tells: false });
  await (await pay(stage, { tracestate: "vendor=1" })).text();
  await stage.gateway.stop();
  expect(stage.collector.spans).toHaveLength(4);
  for (const name of ["traceparent", "tracestate"])
    expect(stage.provider.requests[0]?.headers[name]).toBeUndefined();
});

test("a failed request says why, and headers for the collector are sent", async () => {
  const stage = await startStage({
    OTEL_TRACES_SAMPLER: "always_on",
    OTEL_EXPORTER_OTLP_HEADERS: "x-team=blue%20one, authorization=Bearer abc",
  });
  await (await pay(stage, { "x-api-key": "sk-wrong" })).text();
  await stage.gateway.stop();
  const [span] = stage.collector.spans;
  expect(span?.attributes).toMatchObject({
    "http.response.status_code": 401,
    "error.type": "invalid_key",
  });
  expect(stage.collector.headers()).toMatchObject({
    "x-team": "blue one",
    authorization: "Bearer abc",
  });
});

for (const when of ["before its answer", "in the middle of its answer"]) {
  test(`the hang-up of a client ${when} is not an error of the gateway`, async () => {
    const clock = new ManualClock({ creeps: true });
    const stage = await startStage({ OTEL_TRACES_SAMPLER: "always_on" }, { clock });
    const gate = new Gate();
    const isStream = when !== "before its answer";
    const writes = nativeEvents({ text: ["Good", "day"] });
    stage.provider.always(
      isStream
        ? nativeStream({}, { writes: [...writes.slice(0, 3), gate, ...writes.slice(3)] })
        : nativeAnswer({ text: ["Good day"] }, { before: gate }),
    );
    const hangUp = new AbortController();
    const answering = pay(stage, {}, { stream: isStream, signal: hangUp.signal });
    if (isStream) await (await answering).body?.getReader().read();
    await gate.reached;
    hangUp.abort();
    await answering.catch(() => {});
    const [call] = stage.provider.requests;
    if (!call) throw new Error("the provider got no request");
    // Without waiting for the usage of an answer that nobody reads.
    const over = await passDuring(() => clock.endPause(2_000), call.over);
    expect(over.by).toBe("client");
    await stage.gateway.stop();
    const server = named(stage.collector.spans, "POST /v1/messages");
    expect(server.attributes["http.response.status_code"]).toBe(isStream ? 200 : 499);
    expect(server.attributes["error.type"]).toBe(isStream ? undefined : "cancelled");
    expect(server.status?.code ?? 0).toBe(0);
    gate.open();
  });
}

test("a call over gRPC that nobody traces yet begins a trace", async () => {
  const stage = await startStage({ OTEL_TRACES_SAMPLER: "always_on" });
  const { core } = stage.gateway.admin;
  const content = [{ kind: { case: "text" as const, value: { text: "Hello" } } }];
  const call = { headers: { authorization: `Bearer ${stage.gateway.v1}` } };
  const request = { model: "haiku", maxTokens: 20, messages: [{ role: Role.USER, content }] };
  for await (const _ of core.inference.generate(request, call));
  await stage.gateway.stop();
  const { spans } = stage.collector;
  const root = named(spans, "gateway.inference.v1.InferenceService/Generate");
  expect(root.parentSpanId).toBe("");
  expect(named(spans, "hold").parentSpanId).toBe(root.spanId);
});

test("requests do not wait for a collector that is away, and the process ends", async () => {
  const stage = await startStage({
    OTEL_TRACES_SAMPLER: "always_on",
    OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1",
  });
  for (let sent = 0; sent < 5; sent++) expect((await pay(stage)).status).toBe(200);
  await stage.gateway.stop();
});

const settings: TracingSettings = {
  endpoint: "http://127.0.0.1:1/v1/traces",
  headers: {},
  serviceName: "test",
  sampler: "parentbased_traceidratio",
  ratio: 0.25,
};

test("a share of the requests is traced, as the ratio says", () => {
  const tracer = new Tracer(settings, createLog("silent"));
  const drawn = vi.spyOn(Math, "random");
  const sampled = Array.from({ length: 4_000 }, (_, index) => {
    drawn.mockReturnValueOnce(index / 4_000);
    return tracer.receive({}, "GET /");
  });
  drawn.mockRestore();
  expect(sampled.filter(({ span }) => span !== undefined)).toHaveLength(1_000);
  for (const { headers } of sampled)
    expect(headers.traceparent).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$/);
});

const malformed = [
  "",
  "00-0-0-01",
  `00-${"0".repeat(32)}-${"1".repeat(16)}-01`,
  `00-${"1".repeat(32)}-${"0".repeat(16)}-01`,
  `ff-${"1".repeat(32)}-${"1".repeat(16)}-01`,
  `00-${"1".repeat(32)}-${"1".repeat(16)}-01-more`,
  `00-${"A".repeat(32)}-${"1".repeat(16)}-01`,
];
for (const header of malformed) {
  test(`the header ${JSON.stringify(header)} is no trace, and a new one begins`, () => {
    const tracer = new Tracer({ ...settings, sampler: "always_on" }, createLog("silent"));
    const { span } = tracer.receive({ traceparent: header, tracestate: "a=1" }, "GET /");
    expect(span?.traceId).toMatch(/^[0-9a-f]{32}$/);
    expect(header).not.toContain(span?.traceId);
    // It belongs to the trace that was not read.
    expect(span?.headers.tracestate).toBeUndefined();
  });
}

for (const tracestate of ["", "a=1\u00e9", `a=${"b".repeat(511)}`]) {
  test(`the state ${JSON.stringify(tracestate.slice(0, 8))} of ${tracestate.length} characters is dropped, and its trace goes on`, () => {
    const tracer = new Tracer({ ...settings, sampler: "always_on" }, createLog("silent"));
    const traceparent = `00-${traceId}-${clientSpan}-01`;
    const { headers, span } = tracer.receive({ traceparent, tracestate }, "GET /");
    expect(span?.traceId).toBe(traceId);
    expect(headers.tracestate).toBeUndefined();
  });
}

test("the settings of OpenTelemetry are checked at the start", () => {
  expect(readConfig({}).tracing).toBeUndefined();
  expect(readConfig({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://c:4318/" }).tracing).toEqual({
    endpoint: "http://c:4318/v1/traces",
    headers: {},
    serviceName: "model-gateway",
    sampler: "parentbased_traceidratio",
    ratio: 0.01,
  });
  for (const [name, value] of [
    ["OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"],
    ["OTEL_EXPORTER_OTLP_HEADERS", "sesame"],
    ["OTEL_TRACES_SAMPLER", "sometimes"],
    ["OTEL_TRACES_SAMPLER_ARG", "2"],
  ] as const)
    expect(() => readConfig({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://c", [name]: value })).toThrow(
      new RegExp(`${name}: (?!.*sesame)`),
    );
});
