// The contract of the chat format, over HTTP, with a provider of the native format.

import { readFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import type { JsonObject } from "@bufbuild/protobuf";
import { generateText } from "ai";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { isObject } from "../../src/formats/json.ts";
import {
  type GatewayWithProvider,
  openai,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import { nativeEvents, sseEvent } from "../support/provider-answers.ts";
import { readStream } from "../support/samples/chat-bodies.ts";

let stage: GatewayWithProvider;
beforeAll(async () => {
  stage = await startGatewayWithProvider("native");
  stage.provider.always(stage.reply({ text: ["Hel", "lo"] }));
});
afterAll(() => stage.stop());

const basicRequest = { model: "sonnet", messages: [{ role: "user", content: "Hi" }] };

/** The body that the provider received for a body that the gateway accepts. */
async function receivedFor(body: unknown): Promise<JsonObject> {
  const response = await stage.postChat(body);
  expect({ status: response.status, body: response.ok ? "" : await response.text() }).toEqual({
    status: 200,
    body: "",
  });
  return stage.provider.requests.at(-1)?.body ?? {};
}

async function errorFor(body: unknown): Promise<{ status: number; error: unknown }> {
  const response = await stage.postChat(body);
  const { error } = Object(await response.json());
  expect(Object.keys(error).sort()).toEqual(["code", "message", "param", "type"]);
  return { status: response.status, error };
}

async function chunksOf(body: JsonObject): Promise<ReturnType<typeof readStream>> {
  const response = await stage.postChat({ ...body, stream: true });
  expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
  return readStream(await response.text());
}

test("system and developer texts become one instruction, and all turns are of user or assistant", async () => {
  const messages = [
    { role: "system", content: "One." },
    { role: "user", content: "Hi" },
    { role: "assistant", content: "Hello" },
    { role: "developer", content: "Two." },
    { role: "user", content: "Go" },
  ];
  const sent = await receivedFor({ ...basicRequest, messages });
  expect(sent.system).toBe("One.\nTwo.");
  expect(sent.messages).toEqual([
    { role: "user", content: "Hi" },
    { role: "assistant", content: "Hello" },
    { role: "user", content: "Go" },
  ]);
});

test("the results of two calls and the user's text become one turn, results first, ids unchanged", async () => {
  const call = (id: string) => ({ id, type: "function", function: { name: "f", arguments: "{}" } });
  const messages = [
    { role: "user", content: "Hi" },
    { role: "assistant", content: null, tool_calls: [call("call_a"), call("call_b")] },
    { role: "tool", tool_call_id: "call_a", content: "1" },
    { role: "tool", tool_call_id: "call_b", content: "2" },
    { role: "user", content: "So?" },
  ];
  const sent = await receivedFor({
    ...basicRequest,
    messages,
    tools: [{ type: "function", function: { name: "f" } }],
  });
  expect(Array.isArray(sent.messages) && sent.messages[2]).toEqual({
    role: "user",
    content: [
      { type: "tool_result", tool_use_id: "call_a", content: "1" },
      { type: "tool_result", tool_use_id: "call_b", content: "2" },
      { type: "text", text: "So?" },
    ],
  });
});

test("images are inline or have a URL, and another scheme is rejected with the path of its part", async () => {
  const image = (url: string) => ({
    ...basicRequest,
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "a" },
          { type: "image_url", image_url: { url } },
        ],
      },
    ],
  });
  const sourceOf = ({ messages }: JsonObject) => Object(messages)[0].content[1].source;
  expect(sourceOf(await receivedFor(image("data:image/png;base64,iVBORw0KGgo=")))).toEqual({
    type: "base64",
    media_type: "image/png",
    data: "iVBORw0KGgo=",
  });
  expect(sourceOf(await receivedFor(image("https://example.com/a.png")))).toEqual({
    type: "url",
    url: "https://example.com/a.png",
  });
  expect(await errorFor(image("ftp://example.com/a.png"))).toMatchObject({
    status: 400,
    error: {
      type: "invalid_request_error",
      param: "messages[0].content[1].image_url.url",
      code: null,
    },
  });
});

test("temperature is capped, several choices are rejected, and members without a counterpart are ignored", async () => {
  expect(
    await receivedFor({
      ...basicRequest,
      temperature: 1.7,
      seed: 1,
      logit_bias: { 5: 1 },
      user: "u",
      store: true,
    }),
  ).toEqual({
    model: "provider-model",
    max_tokens: expect.any(Number),
    stream: true,
    temperature: 1,
    messages: basicRequest.messages,
  });
  expect(await errorFor({ ...basicRequest, n: 2 })).toMatchObject({
    status: 400,
    error: { param: "n" },
  });
});

test("parallel calls of a stream have the numbers 0 and 1 and valid arguments", async () => {
  const call = (index: number, id: string, name: string, pieces: string[]) => [
    sseEvent("content_block_start", {
      index,
      content_block: { type: "tool_use", id, name, input: {} },
    }),
    ...pieces.map((piece) =>
      sseEvent("content_block_delta", {
        index,
        delta: { type: "input_json_delta", partial_json: piece },
      }),
    ),
    sseEvent("content_block_stop", { index }),
  ];
  const [start = "", ...end] = nativeEvents({ stopReason: "tool_use" });
  const calls = [...call(0, "toolu_a", "f", ['{"x"', ":1}"]), ...call(1, "toolu_b", "g", [])];
  stage.provider.play({
    headers: { "content-type": "text/event-stream" },
    writes: [start, ...calls, ...end],
  });
  const chunks = await chunksOf({
    ...basicRequest,
    tools: [
      { type: "function", function: { name: "f" } },
      { type: "function", function: { name: "g" } },
    ],
  });
  const deltas = chunks.flatMap((chunk) => (chunk === "[DONE]" ? [] : Object(chunk.choices)));
  const fragments = deltas.flatMap(({ delta }) => delta.tool_calls ?? []);
  expect(fragments.map(({ index }) => index)).toEqual([0, 0, 0, 1, 1]);
  expect(fragments[0]).toEqual({
    index: 0,
    id: "toolu_a",
    type: "function",
    function: { name: "f", arguments: "" },
  });
  expect(fragments[3]).toEqual({
    index: 1,
    id: "toolu_b",
    type: "function",
    function: { name: "g", arguments: "" },
  });
  const argumentsOf = (index: number) =>
    fragments
      .filter((one) => one.index === index)
      .map((one) => one.function.arguments)
      .join("");
  expect([JSON.parse(argumentsOf(0)), JSON.parse(argumentsOf(1))]).toEqual([{ x: 1 }, {}]);
  expect(deltas.at(-1).finish_reason).toBe("tool_calls");
  expect(chunks.at(-1)).toBe("[DONE]");
});

test("a stream has its usage on request, right before the end, cached input included", async () => {
  const usage = { input: 10, cacheRead: 3, cacheWrite: 2, output: 5 };
  stage.provider.play(stage.reply({ text: ["a"], usage }), stage.reply({ text: ["a"], usage }));
  const withUsage = await chunksOf({ ...basicRequest, stream_options: { include_usage: true } });
  expect(withUsage.at(-2)).toMatchObject({
    choices: [],
    usage: {
      prompt_tokens: 15,
      completion_tokens: 5,
      total_tokens: 20,
      prompt_tokens_details: { cached_tokens: 3, cache_write_tokens: 2 },
    },
  });
  expect(withUsage.at(-1)).toBe("[DONE]");
  const withoutUsage = await chunksOf(basicRequest);
  expect(JSON.stringify(withoutUsage)).not.toContain("usage");
  expect(withoutUsage.at(-1)).toBe("[DONE]");
});

describe("a provider that breaks off during a stream", () => {
  // The connection ends without the last events, or is cut.
  const broken = () =>
    stage.provider.play({
      headers: { "content-type": "text/event-stream" },
      writes: nativeEvents({ text: ["Hel", "lo"] }).slice(0, 4),
      end: "reset",
    });

  test("ends in one error object, without a final chunk or a terminator", async () => {
    broken();
    const chunks = await chunksOf(basicRequest);
    expect(chunks.at(-1)).toEqual({
      error: {
        message: expect.any(String),
        type: "server_error",
        param: null,
        code: "upstream_error",
      },
    });
    expect(JSON.stringify(chunks.slice(0, -1))).not.toContain("error");
    expect(JSON.stringify(chunks)).not.toMatch(/DONE|"finish_reason":"/);
  });

  test("is an exception with a code to the official client", async () => {
    broken();
    const stream = openai(stage).chat.completions.stream({
      model: "sonnet",
      messages: [{ role: "user", content: "Hi" }],
    });
    await expect(stream.finalMessage()).rejects.toMatchObject({ code: "upstream_error" });
  });
});

describe("a caller without credits, or over a limit", () => {
  /** Counts calls, and shortens the clients' pauses between attempts. */
  function countingFetch() {
    const seen: Response[] = [];
    const counting: typeof fetch = async (...given) => {
      const response = await fetch(...given);
      seen.push(response);
      if (response.status !== 429) return response;
      const headers = new Headers(response.headers);
      headers.set("retry-after-ms", "1");
      return new Response(response.body, { status: response.status, headers });
    };
    return { seen, counting };
  }

  async function keyWith(limits: {
    requestsPerMinute?: number;
    monthlyCapMicrocredits?: bigint;
    poor?: boolean;
  }): Promise<string> {
    const { core, call } = stage.gateway.admin;
    const { poor, ...more } = limits;
    const accountId = poor
      ? ((await core.billing.createAccount({ settings: { name: "poor" } }, call)).account
          ?.accountId ?? "")
      : stage.gateway.accountId;
    return (
      await core.keys.createKey(
        { accountId, family: Family.V1, settings: { name: "k", ...more } },
        call,
      )
    ).secret;
  }

  const cases = [
    {
      name: "no credits",
      limits: { poor: true },
      status: 402,
      error: { type: "insufficient_quota", code: "insufficient_quota" },
      calls: 1,
    },
    {
      name: "the month's cap",
      limits: { monthlyCapMicrocredits: 0n },
      status: 402,
      error: { type: "insufficient_quota", code: "monthly_cap_reached" },
      calls: 1,
    },
    {
      name: "the rate limit",
      limits: { requestsPerMinute: 1 },
      usedUp: true,
      status: 429,
      error: { type: "requests", code: "rate_limit_exceeded" },
      calls: 3,
    },
    {
      name: "a limit of no requests",
      limits: { requestsPerMinute: 0 },
      status: 403,
      error: { type: "invalid_request_error", code: "requests_not_allowed" },
      calls: 1,
    },
  ];
  for (const { name, limits, usedUp, status, error, calls } of cases) {
    test(`${name}: ${status}, and the clients call ${calls} times`, async () => {
      const apiKey = await keyWith(limits);
      if (usedUp)
        await openai(stage, { apiKey }).chat.completions.create({
          model: "sonnet",
          messages: [{ role: "user", content: "Hi" }],
        });
      const official = countingFetch();
      const client = openai(stage, { apiKey, maxRetries: 2, fetch: official.counting });
      const call = client.chat.completions.create({
        model: "sonnet",
        messages: [{ role: "user", content: "Hi" }],
      });
      await expect(call).rejects.toMatchObject({ status, error: { ...error, param: null } });
      expect(official.seen).toHaveLength(calls);
      if (status === 429)
        expect(official.seen[0]?.headers.get("retry-after")).toMatch(/^[1-9]\d*$/);

      const other = countingFetch();
      const provider = createOpenAICompatible({
        name: "gateway",
        baseURL: `${stage.gateway.address}/v1`,
        apiKey,
        fetch: other.counting,
      });
      await expect(generateText({ model: provider("sonnet"), prompt: "Hi" })).rejects.toThrow();
      expect(other.seen).toHaveLength(calls);
    });
  }
});

test("both official clients list all models in one request, with either header", async () => {
  const { gateway } = stage;
  let calls = 0;
  const counting: typeof fetch = (...given) => {
    calls++;
    return fetch(...given);
  };
  const ids: string[] = [];
  for await (const model of openai(stage, { fetch: counting }).models.list()) ids.push(model.id);
  const nativeIds: string[] = [];
  for await (const model of new Anthropic({
    apiKey: gateway.v1,
    baseURL: gateway.address,
    fetch: counting,
  }).models.list())
    nativeIds.push(model.id);
  expect(calls).toBe(2);
  expect(nativeIds).toEqual(ids);
  expect(ids).toEqual([
    "model-opus-4.6",
    "model-sonnet-4.6",
    "model-haiku-4.5",
    "opus",
    "sonnet",
    "haiku",
  ]);

  const response = await fetch(`${gateway.address}/v1/models`, {
    headers: { "x-api-key": gateway.v1 },
  });
  const { data } = Object(await response.json());
  expect(
    data.filter((entry: JsonObject) => "alias_for" in entry).map((entry: JsonObject) => entry.id),
  ).toEqual(["opus", "sonnet", "haiku"]);
});

test("a body of Cursor's agent is accepted, in the form of either API", async () => {
  const fixture = (name: string) =>
    JSON.parse(
      readFileSync(new URL(`../formats/chat/fixtures/${name}.json`, import.meta.url), "utf8"),
    );
  for (const name of ["cursor-agent", "cursor-responses"]) {
    const { body, native } = fixture(name);
    const sent = await receivedFor(body);
    expect(sent).toMatchObject({ ...native, model: "provider-model" });
  }
  const { body } = fixture("cursor-responses");
  const input = [{ type: "item_reference", id: "x" }];
  expect(await errorFor({ ...body, input })).toMatchObject({
    status: 400,
    error: { param: "input[0].type" },
  });
});

const badBodies: [name: string, text: string, param: string | null][] = [
  ["is no JSON", '{"model":', null],
  ["is no object", "[]", null],
  [
    "is deeper than any body may be",
    `{"model":"sonnet","messages":${"[".repeat(300)}${"]".repeat(300)}}`,
    null,
  ],
  [
    "holds half a character",
    '{"model":"sonnet","messages":[{"role":"user","content":"\\ud800"}]}',
    null,
  ],
  ["has no messages", '{"model":"sonnet"}', "messages"],
  [
    "has a number for content",
    '{"model":"sonnet","messages":[{"role":"user","content":4}]}',
    "messages[0].content",
  ],
  [
    "asks for nothing",
    '{"model":"haiku","max_tokens":0,"messages":[{"role":"user","content":"a"}]}',
    "max_tokens",
  ],
];
for (const [name, text, param] of badBodies) {
  test(`a body that ${name} is a 400 with its path`, async () => {
    const headers = {
      "content-type": "application/json",
      authorization: `Bearer ${stage.gateway.v1}`,
    };
    const response = await fetch(`${stage.gateway.address}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: text,
    });
    expect(response.status).toBe(400);
    expect(response.headers.get("x-should-retry")).toBe("false");
    expect(await response.json()).toEqual({
      error: { message: expect.any(String), type: "invalid_request_error", param, code: null },
    });
  });
}

test("the base address works with and without /v1", async () => {
  for (const path of ["/v1/chat/completions", "/chat/completions", "/v1/v1/chat/completions"]) {
    expect((await stage.postChat(basicRequest, path)).status).toBe(200);
  }
});

test("an answer has the catalogue's model and the request id, even if the model was a fallback", async () => {
  const response = await stage.postChat({ ...basicRequest, model: "claude-sonnet-9-9" });
  const body: unknown = await response.json();
  expect(isObject(Object(body)) && body).toMatchObject({
    object: "chat.completion",
    model: "model-sonnet-4.6",
  });
  expect(response.headers.get("x-request-id")).toMatch(/^req_/);
});

test("a reasoning effort becomes the model's form of thinking, and signed thinking returns to the provider", async () => {
  stage.provider.play(
    stage.reply({
      thinking: { pieces: ["Let me ", "think."], signature: "c2lnbmVk" },
      tool: { id: "toolu_1", name: "f", input: ["{}"] },
    }),
  );
  const first = await stage.postChat({
    ...basicRequest,
    reasoning_effort: "high",
    temperature: 0.5,
    tools: [{ type: "function", function: { name: "f" } }],
  });
  expect(stage.provider.requests.at(-1)?.body).toMatchObject({
    thinking: { type: "adaptive" },
    output_config: { effort: "high" },
  });
  expect(stage.provider.requests.at(-1)?.body).not.toHaveProperty("temperature");
  const { message } = Object(await first.json()).choices[0];
  expect(message).toMatchObject({ content: null, reasoning_content: "Let me think." });
  const messages = [
    ...basicRequest.messages,
    message,
    { role: "tool", tool_call_id: "toolu_1", content: "1" },
  ];
  const sent = await receivedFor({ ...basicRequest, reasoning_effort: "high", messages });
  expect(Object(sent.messages)[1].content).toEqual([
    { type: "thinking", thinking: "Let me think.", signature: "c2lnbmVk" },
    { type: "tool_use", id: "toolu_1", name: "f", input: {} },
  ]);
});

test("native thinking settings reach a native provider unchanged and override an effort", async () => {
  const thinking = { type: "enabled", budget_tokens: 2048, display: "omitted" };
  const sent = await receivedFor({ ...basicRequest, thinking, reasoning_effort: "high" });
  expect(sent.thinking).toEqual(thinking);
  expect(sent).not.toHaveProperty("output_config");
});

test("the official client and a plain HTTP client get the same error", async () => {
  await expect(
    openai(stage).chat.completions.create({
      model: "gpt-4o",
      messages: [{ role: "user", content: "Hi" }],
    }),
  ).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  expect(await errorFor({ ...basicRequest, model: "gpt-4o" })).toMatchObject({
    status: 404,
    error: { code: "model_not_found", param: "model" },
  });
});
