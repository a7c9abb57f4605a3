// Streams show their cost in the event with the final usage.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readCatalogFile } from "../../src/config/catalog.ts";
import { catalogFor } from "../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type FakeProvider, startFakeProvider } from "../support/provider.ts";
import {
  chatStream,
  nativeAnswer,
  nativeEvents,
  nativeStream,
} from "../support/provider-answers.ts";

const content = { text: ["Hello"], usage: { input: 100, output: 7 } };
// 100 × 140 + 7 × 700 micro-credits.
const cost = "0.0189";

let provider: FakeProvider;
let gateway: TestGateway;
let silent: TestGateway;
beforeAll(async () => {
  provider = await startFakeProvider();
  const catalog = readCatalogFile(catalogFor({ real: { kind: "anthropic", url: provider.url } }));
  gateway = await startTestGateway({ catalog });
  silent = await startTestGateway({ catalog, env: { STREAM_COST: "false" } });
});
afterAll(async () => {
  await gateway.stop();
  await silent.stop();
  await provider.stop();
});

async function post(
  { address, v1 }: TestGateway,
  format: "messages" | "chat/completions",
  more: object = {},
) {
  const answer = await fetch(`${address}/v1/${format}`, {
    method: "POST",
    headers: {
      ...(format === "messages" ? { "x-api-key": v1 } : { authorization: `Bearer ${v1}` }),
      "anthropic-version": "2023-06-01",
      "content-type": "application/json",
    },
    body: JSON.stringify({
      model: "haiku",
      max_tokens: 100,
      stream: true,
      messages: [{ role: "user", content: "Hello" }],
      ...more,
    }),
  });
  const text = await answer.text();
  const events = [...text.matchAll(/^data: (\{.*)$/gm)].map((match) => JSON.parse(match[1] ?? ""));
  return { requestId: answer.headers.get("request-id"), headers: answer.headers, events };
}

const withCost = (events: { gateway?: unknown }[]) =>
  events.filter((event) => event.gateway !== undefined);

describe("the cost of a stream", () => {
  test("is in the native message_delta, beside the usage, as a plain answer has it in its header", async () => {
    provider.play(nativeStream(content));
    const { events, requestId } = await post(gateway, "messages");
    expect(withCost(events)).toMatchObject([
      {
        type: "message_delta",
        usage: { output_tokens: 7 },
        gateway: { request_id: requestId, cost_credits: cost },
      },
    ]);
    expect(withCost(events)[0]).not.toHaveProperty("usage.gateway");
    provider.play(nativeAnswer(content));
    const plain = await post(gateway, "messages", { stream: false });
    expect(plain.headers.get("x-gateway-cost-credits")).toBe(cost);
  });

  test("is in the usage chunk of chat where the client wants one, else in the last chunk", async () => {
    provider.play(nativeStream(content), nativeStream(content));
    const wanted = { stream_options: { include_usage: true } };
    const { events, requestId } = await post(gateway, "chat/completions", wanted);
    expect(withCost(events)).toMatchObject([
      {
        choices: [],
        usage: { completion_tokens: 7 },
        gateway: { request_id: requestId, cost_credits: cost },
      },
    ]);
    const without = await post(gateway, "chat/completions");
    expect(withCost(without.events)).toMatchObject([
      { choices: [{ finish_reason: "stop" }], gateway: { cost_credits: cost } },
    ]);
  });

  test("is ours: a provider's own member of that name is dropped", async () => {
    const forged = nativeEvents(content).map((event) =>
      event.replace('"type":"message_delta"', '"type":"message_delta","gateway":{"cost":0}'),
    );
    provider.play({ ...nativeStream(), writes: forged }, { ...nativeStream(), writes: forged });
    expect(withCost((await post(gateway, "messages")).events)).toMatchObject([
      { gateway: { cost_credits: cost } },
    ]);
    expect(withCost((await post(silent, "messages")).events)).toEqual([]);
  });

  test("is left out with STREAM_COST=false", async () => {
    provider.play(nativeStream(content), nativeStream(content));
    expect(withCost((await post(silent, "messages")).events)).toEqual([]);
    expect(withCost((await post(silent, "chat/completions")).events)).toEqual([]);
  });
});

describe("what is shown is what is charged", () => {
  const usageOf = async (usage: object) => {
    provider.play({
      ...nativeAnswer(),
      writes:
        nativeAnswer(content).writes?.map((body) =>
          JSON.stringify({ ...JSON.parse(String(body)), usage }),
        ) ?? [],
    });
    const answer = await fetch(`${gateway.address}/v1/messages`, {
      method: "POST",
      headers: {
        "x-api-key": gateway.v1,
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
      },
      body: JSON.stringify({
        model: "haiku",
        max_tokens: 100,
        messages: [{ role: "user", content: "Hello" }],
      }),
    });
    const { usage: shown } = JSON.parse(await answer.text());
    const requestId = answer.headers.get("request-id") ?? "";
    const { core, call } = gateway.admin;
    const { receipt } = await core.billing.getReceipt(
      { requestId, accountId: gateway.accountId },
      call,
    );
    return { shown, charged: receipt?.usage };
  };

  test.each([
    ["output_tokens is null", { input_tokens: 10, output_tokens: null }],
    ["output_tokens is a text", { input_tokens: 10, output_tokens: "7" }],
    [
      "its parts of cache writes contradict their sum",
      {
        input_tokens: 10,
        output_tokens: 7,
        cache_creation_input_tokens: 5,
        cache_creation: { ephemeral_5m_input_tokens: 4, ephemeral_1h_input_tokens: 9 },
      },
    ],
    [
      "work beside the answer is reported apart",
      {
        input_tokens: 10,
        output_tokens: 7,
        iterations: [{ type: "compaction", input_tokens: 20, output_tokens: 3 }],
      },
    ],
    ["the output is above the grant", { input_tokens: 10, output_tokens: 5_000 }],
  ])("where %s", async (_, usage) => {
    const { shown, charged } = await usageOf(usage);
    expect(shown.input_tokens).toBe(charged?.input);
    expect(shown.output_tokens).toBe((charged?.output ?? 0) + (charged?.thinking ?? 0));
    expect(shown.cache_creation_input_tokens ?? 0).toBe(
      (charged?.cacheWrite5m ?? 0) + (charged?.cacheWrite1h ?? 0),
    );
    expect(shown.cache_read_input_tokens ?? 0).toBe(charged?.cacheRead);
    if (shown.cache_creation !== undefined)
      expect(shown.cache_creation).toMatchObject({
        ephemeral_5m_input_tokens: charged?.cacheWrite5m,
        ephemeral_1h_input_tokens: charged?.cacheWrite1h,
      });
  });
});

test("chat providers that report with every chunk are charged their last report", async () => {
  const chat = await startFakeProvider();
  const catalog = readCatalogFile(catalogFor({ real: { kind: "openai", url: chat.url } }));
  const other = await startTestGateway({ catalog });
  chat.always(chatStream(content));
  const { events } = await post(other, "messages");
  expect(withCost(events)).toMatchObject([{ gateway: { cost_credits: cost } }]);
  await other.stop();
  await chat.stop();
});
