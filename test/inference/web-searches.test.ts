// Web searches that a provider runs: bounded by the request, covered by its hold, and charged as
// the provider reports them, or as they were handed on.

import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Outcome, type Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, type Script, startFakeProvider } from "../support/provider.ts";
import { nativeStream, sseEvent } from "../support/provider-answers.ts";

const input = 140n;
const output = 700n;
/** At 10 USD per 1,000. */
const search = 2_000_000n;

let provider: FakeProvider;
let gateway: TestGateway;
beforeAll(async () => {
  provider = await startFakeProvider();
  gateway = await startTestGateway({ catalog: catalog() });
});
afterAll(async () => {
  await gateway.stop();
  await provider.stop();
});

let queue = 100;
/** The provider with other settings: what it did before is forgotten. */
function catalog() {
  const native = { kind: "anthropic", url: provider.url, more: `queue: ${queue++}` } as const;
  return readCatalogFile(catalogFor({ native }, undefined, { searches: "10.00" }));
}

const call = { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: {} };
const found = {
  type: "web_search_tool_result",
  tool_use_id: "srvtoolu_1",
  content: Array.from({ length: 40 }, () => ({
    type: "web_search_result",
    url: "https://example.org",
    encrypted_content: "e".repeat(1_000),
  })),
};

/** The events of an answer after two searches of 40 KB. `end`: the usage of its last report. */
function eventsWith(end: JsonObject): string[] {
  const blocks = [call, found, { ...call, id: "srvtoolu_2" }, found];
  const text = { type: "text", text: "" };
  const message = {
    ...{ id: "msg_1", type: "message", role: "assistant", model: "provider-model", content: [] },
    usage: { input_tokens: 11, output_tokens: 1, server_tool_use: { web_search_requests: 0 } },
  };
  return [
    sseEvent("message_start", { message }),
    ...blocks.flatMap((block, index) => [
      sseEvent("content_block_start", { index, content_block: block }),
      sseEvent("content_block_stop", { index }),
    ]),
    sseEvent("content_block_start", { index: 4, content_block: text }),
    sseEvent("content_block_delta", { index: 4, delta: { type: "text_delta", text: "12345678" } }),
    sseEvent("content_block_stop", { index: 4 }),
    sseEvent("message_delta", { delta: { stop_reason: "end_turn" }, usage: end }),
    sseEvent("message_stop"),
  ];
}

const reported = {
  ...{ input_tokens: 21_000, output_tokens: 9 },
  server_tool_use: { web_search_requests: 2 },
};

async function ask(
  script: Script,
  { tool = {}, stream = true }: { tool?: JsonObject; stream?: boolean } = {},
) {
  gateway.reload(catalog());
  provider.always(script);
  const answer = await fetch(`${gateway.address}/v1/messages`, {
    method: "POST",
    headers: {
      "x-api-key": gateway.v1,
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      ...{ model: "haiku", max_tokens: 4_096, stream },
      messages: [{ role: "user", content: "Hello" }],
      tools: [{ type: "web_search_20250305", name: "web_search", ...tool }],
    }),
  });
  const body = await answer.text();
  const requestId = answer.headers.get("x-request-id") ?? "";
  return { body, receipt: await charged(requestId), requestId };
}

async function charged(requestId: string): Promise<Receipt> {
  const { core, call } = gateway.admin;
  for (;;) {
    const request = { requestId, accountId: gateway.accountId };
    const { receipt } = await core.billing.getReceipt(request, call);
    if (receipt?.settledAt) return receipt;
  }
}

test("a web search of 40 KB is no output: its answer ends by itself, by its figures", async () => {
  const { body, receipt, requestId } = await ask(
    nativeStream({}, { writes: eventsWith(reported) }),
  );
  expect(provider.requests.at(-1)?.body.tools).toEqual([
    { type: "web_search_20250305", name: "web_search", max_uses: 8 },
  ]);
  expect(body).toContain('"stop_reason":"end_turn"');
  expect(body).toContain("e".repeat(1_000));
  expect(body).toContain('"web_search_requests":2');
  expect(receipt).toMatchObject({
    outcome: Outcome.COMPLETED,
    usage: { input: 21_000, output: 9, webSearches: 2 },
    price: { webSearch: search },
    chargedMicrocredits: 21_000n * input + 9n * output + 2n * search,
  });
  expect(receipt.holdMicrocredits).toBeGreaterThanOrEqual(8n * search + 4_096n * output);

  const headers = { "x-api-key": gateway.v1 };
  const found = await fetch(`${gateway.address}/v1/receipts/${requestId}`, { headers });
  expect(await found.json()).toMatchObject({ web_searches: 2, credits_per_web_search: "2" });
});

test("a provider that breaks off is paid for the searches that were handed on", async () => {
  const writes = eventsWith(reported).slice(0, -3);
  const { receipt } = await ask(nativeStream({}, { writes, end: "reset" }));
  expect(receipt).toMatchObject({
    outcome: Outcome.PROVIDER_BROKE,
    usage: { input: 11, webSearches: 2 },
  });
});

test("a total of 0 is believed where searches failed", async () => {
  const end = { ...reported, server_tool_use: { web_search_requests: 0 } };
  const { receipt } = await ask(nativeStream({}, { writes: eventsWith(end) }));
  expect(receipt.usage).toMatchObject({ webSearches: 0 });
});

test("no more searches are charged and shown than the request allows", async () => {
  const end = { ...reported, server_tool_use: { web_search_requests: 5_000 } };
  const { body, receipt } = await ask(nativeStream({}, { writes: eventsWith(end) }), {
    tool: { max_uses: 3 },
  });
  expect(body).toContain('"web_search_requests":3');
  expect(receipt.usage).toMatchObject({ webSearches: 3 });
});

test.each(["-1", "1.5", '"2"', "null", "{}"])("a report of %s searches is none", async (value) => {
  const end = { ...reported, server_tool_use: { web_search_requests: "VALUE" } };
  const writes = eventsWith(end).map((one) => one.replace('"VALUE"', value));
  const { receipt } = await ask(nativeStream({}, { writes }));
  expect(receipt.usage).toMatchObject({ webSearches: 2 });
});

test("the ledger counts searches in every sum, and finds nothing wrong", async () => {
  const { core, call } = gateway.admin;
  const { totals } = await core.billing.queryUsage({ accountId: gateway.accountId }, call);
  expect(totals?.usage?.webSearches).toBe(17n);
  const { rows } = await core.billing.queryUsage({ accountId: gateway.accountId }, call);
  expect(rows.map(({ sums }) => sums?.usage?.webSearches)).toEqual([17n]);
});
