// What a provider does not get is said: in a header, beside the cost, in the receipt and in a
// metric, and never as an error.

import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import { nativeAnswer, nativeStream } from "../support/provider-answers.ts";

let provider: FakeProvider;
let gateway: TestGateway;
beforeAll(async () => {
  provider = await startFakeProvider();
  const catalog = readCatalogFile(catalogFor({ real: { kind: "anthropic", url: provider.url } }));
  gateway = await startTestGateway({ catalog, env: { METRICS_PORT: "0" } });
  provider.always(({ body }) => (body.stream === true ? nativeStream() : nativeAnswer()));
});
afterAll(async () => {
  await gateway.stop();
  await provider.stop();
});

const schema = { type: "object", properties: { a: { type: "integer", minimum: 3 } } };
const withMore: JsonObject = {
  seed: 7,
  "odd, =é": 1,
  response_format: { type: "json_schema", json_schema: { name: "n", schema } },
};
const entries = [
  { where: "seed", what: "seed", why: "member", count: 1 },
  { where: "odd, =é", what: "odd, =é", why: "member", count: 1 },
  { where: "response_format", what: "minimum", why: "unsupported", count: 1 },
];
const header =
  "seed=seed;member, odd%2C%20%3D%C3%A9=odd%2C%20%3D%C3%A9;member, " +
  "response_format=minimum;unsupported";

async function ask(more: JsonObject): Promise<{ header: string | null; id: string; body: string }> {
  const answer = await fetch(`${gateway.address}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${gateway.v1}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "opus",
      max_tokens: 64,
      messages: [{ role: "user", content: "Go." }],
      ...more,
    }),
  });
  expect(answer.status).toBe(200);
  return {
    header: answer.headers.get("x-gateway-left-out"),
    id: answer.headers.get("request-id") ?? answer.headers.get("x-request-id") ?? "",
    body: await answer.text(),
  };
}

async function receiptOf(id: string): Promise<JsonObject> {
  const headers = { authorization: `Bearer ${gateway.v1}` };
  const answer = await fetch(`${gateway.address}/v1/receipts/${id}`, { headers });
  return JSON.parse(await answer.text());
}

test("whole and streamed, and where nothing is left out there is no word of it", async () => {
  const whole = await ask(withMore);
  expect(whole.header).toBe(header);
  expect(JSON.parse(whole.body).gateway).toMatchObject({ request_id: whole.id, left_out: entries });
  const streamed = await ask({ ...withMore, stream: true });
  expect(streamed.header).toBe(header);
  const [, last = ""] = /"gateway":(\{.*?\]\})/.exec(streamed.body) ?? [];
  expect(JSON.parse(last)).toMatchObject({ left_out: entries });
  // Read from the ledger.
  for (const { id } of [whole, streamed])
    expect(await receiptOf(id)).toMatchObject({ outcome: "COMPLETED", left_out: entries });

  const plain = await ask({});
  expect([plain.header, plain.body.includes("left_out")]).toEqual([null, false]);
  expect(await receiptOf(plain.id)).toMatchObject({ left_out: [] });

  const metrics = await (await fetch(`${gateway.metricsAddress}/metrics`)).text();
  expect(metrics).toContain('gateway_left_out_total{why="member"} 4');
  expect(metrics).toContain('gateway_left_out_total{why="unsupported"} 2');
});

test("of many entries the header has the first, and the number of the others", async () => {
  const many = Object.fromEntries(Array.from({ length: 60 }, (_, at) => [`member_${at}`, at]));
  const { header: of = "", body } = await ask(many);
  const shown = (of ?? "").split(", ");
  expect([shown.length, shown[0], shown.at(-1)]).toEqual([21, "member_0=member_0;member", "+40"]);
  expect(JSON.parse(body).gateway.left_out).toHaveLength(60);
  const long = Object.fromEntries(
    Array.from({ length: 20 }, (_, at) => [`${at}${"x".repeat(90)}`, at]),
  );
  const { header: short } = await ask(long);
  expect((short ?? "").length).toBeLessThanOrEqual(1_010);
  expect(short).toMatch(/, \+\d+$/);
});

test("what the gateway leaves out and what the provider does not know stand in one list", async () => {
  const answer = await fetch(`${gateway.address}/v1/responses`, {
    method: "POST",
    headers: { authorization: `Bearer ${gateway.v1}`, "content-type": "application/json" },
    body: JSON.stringify({
      ...{ model: "opus", input: "Go.", max_output_tokens: 64, seed: 7 },
      tools: [{ type: "image_generation" }],
    }),
  });
  expect(answer.status).toBe(200);
  const { left_out } = await receiptOf(answer.headers.get("x-request-id") ?? "");
  expect(left_out).toEqual([
    { where: "tools[0]", what: "image_generation", why: "hosted", count: 1 },
    { where: "seed", what: "seed", why: "member", count: 1 },
  ]);
});
