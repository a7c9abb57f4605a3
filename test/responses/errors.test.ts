// Errors of /v1/responses in OpenAI's shape: what is refused, with its path, and what a stream that
// fails ends with.

import { request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  type GatewayWithProvider,
  openai,
  readEvents,
  startGatewayWithProvider,
} from "../support/gateway-with-provider.ts";
import { errorAnswer, nativeEvents, sseEvent } from "../support/provider-answers.ts";

let stage: GatewayWithProvider;
beforeAll(async () => {
  stage = await startGatewayWithProvider("native");
});
afterAll(() => stage.stop());

const base = { model: "sonnet", input: "Hello" };
const post = (body: unknown) => stage.postChat(body, "/v1/responses");
const messageOf = (content: unknown) => ({ ...base, input: [{ role: "user", content }] });

const refused: readonly [name: string, body: unknown, param: string | null][] = [
  ["a stored response", { ...base, previous_response_id: "resp_1" }, "previous_response_id"],
  ["a conversation", { ...base, conversation: "conv_1" }, "conversation"],
  ["a stored prompt", { ...base, prompt: { id: "pmpt_1" } }, "prompt"],
  ["background work", { ...base, background: true }, "background"],
  [
    "a built-in tool that it demands",
    { ...base, tools: [{ type: "web_search" }], tool_choice: { type: "web_search" } },
    "tool_choice",
  ],
  [
    "a built-in tool in a namespace",
    { ...base, tools: [{ type: "namespace", name: "n", tools: [{ type: "mcp" }] }] },
    "tools[0].tools[0].type",
  ],
  [
    "a namespace without a name",
    { ...base, tools: [{ type: "namespace", tools: [{ type: "function", name: "f" }] }] },
    "tools[0].name",
  ],
  [
    "two tools of one name",
    { ...base, tools: [0, 1].map(() => ({ type: "function", name: "f" })) },
    "tools[1].name",
  ],
  ["a tool without a type", { ...base, tools: [{ name: "x" }] }, "tools[0].type"],
  ["a tool without a name", { ...base, tools: [{ type: "function" }] }, "tools[0].name"],
  [
    "an unknown grammar",
    { ...base, tools: [{ type: "custom", name: "x", format: { type: "bnf" } }] },
    "tools[0].format.type",
  ],
  ["a choice without its tool", { ...base, tool_choice: "required" }, "tool_choice"],
  ["no input", { model: "sonnet" }, "input"],
  ["a blank input", { ...base, input: " " }, "input"],
  ["an empty input", { ...base, input: [] }, "input"],
  ["a number as input", { ...base, input: 5 }, "input"],
  ["an item that is no object", { ...base, input: ["x"] }, "input[0]"],
  ["an item without a type", { ...base, input: [{ type: 5 }] }, "input[0].type"],
  ["a reference", { ...base, input: [{ type: "item_reference", id: "x" }] }, "input[0].type"],
  ["an unknown role", { ...base, input: [{ role: "tool", content: "" }] }, "input[0].role"],
  ["a content of another type", messageOf(7), "input[0].content"],
  ["an unknown part", messageOf([{ type: "input_audio" }]), "input[0].content[0].type"],
  [
    "an image of a file store",
    messageOf([{ type: "input_image", file_id: "file_1" }]),
    "input[0].content[0].file_id",
  ],
  [
    "an image that is no URL",
    messageOf([{ type: "input_image", image_url: "cat" }]),
    "input[0].content[0].image_url",
  ],
  [
    "a file without content",
    messageOf([{ type: "input_file", filename: "a.pdf" }]),
    "input[0].content[0].file_url",
  ],
  ["a call without an id", { ...base, input: [{ type: "function_call" }] }, "input[0].call_id"],
  [
    "a result without output",
    { ...base, input: [{ type: "function_call_output", call_id: "c" }] },
    "input[0].output",
  ],
  ["a negative limit", { ...base, max_output_tokens: -1 }, "max_output_tokens"],
  ["a limit of 0", { ...base, max_output_tokens: 0 }, "max_output_tokens"],
  ["a hot temperature", { ...base, temperature: 3 }, "temperature"],
  ["a text as include", { ...base, include: "x" }, "include"],
  ["a stream that is no boolean", { ...base, stream: "yes" }, "stream"],
  [
    "a format without schema",
    { ...base, text: { format: { type: "json_schema" } } },
    "text.format.schema",
  ],
  ["no model", { input: "Hello" }, "model"],
  ["a list", [], null],
];

test.each(refused)("refuses %s with its path, and calls no provider", async (_, body, param) => {
  const before = stage.provider.requests.length;
  const response = await post(body);
  expect(response.status).toBe(400);
  const { error } = Object(await response.json());
  expect(error).toMatchObject({ type: "invalid_request_error", param });
  expect(typeof error.message).toBe("string");
  expect(stage.provider.requests).toHaveLength(before);
});

test.each([
  ["GET", "/v1/responses/resp_1"],
  ["DELETE", "/v1/responses/resp_1"],
  ["POST", "/v1/responses/resp_1/cancel"],
  ["GET", "/v1/responses/resp_1/input_items"],
])("answers %s %s with 404 in OpenAI's shape", async (method, path) => {
  const headers = { authorization: `Bearer ${stage.gateway.v1}` };
  const response = await fetch(stage.gateway.address + path, { method, headers });
  expect(response.status).toBe(404);
  expect(await response.json()).toMatchObject({
    error: { code: "not_found", param: null, message: expect.stringContaining("not stored") },
  });
});

test("answers the upgrade to a WebSocket with 426", async () => {
  const headers = {
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    authorization: `Bearer ${stage.gateway.v1}`,
  };
  const url = `${stage.gateway.address}/v1/responses`;
  const { status, text } = await new Promise<{ status: number; text: string }>(
    (resolve, reject) => {
      const request = httpRequest(url, { headers }, (response) => {
        let text = "";
        response.on("data", (bytes) => {
          text += bytes;
        });
        response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
      });
      request.on("upgrade", () => reject(new Error("upgraded"))).on("error", reject);
      request.end();
    },
  );
  expect(status).toBe(426);
  expect(JSON.parse(text)).toMatchObject({ error: { code: "method_not_allowed" } });
});

test("knows a wrong key and an unknown model as OpenAI's errors", async () => {
  const wrong = openai(stage, { apiKey: "sk-gw2-wrong" }).responses.create(base);
  await expect(wrong).rejects.toMatchObject({ status: 401, code: "invalid_api_key" });
  const unknown = openai(stage).responses.create({ ...base, model: "gpt-4o" });
  await expect(unknown).rejects.toMatchObject({ status: 404, code: "model_not_found" });
});

test("names the fields of its own format where the provider names those of another", async () => {
  const other = await startGatewayWithProvider("chat");
  const refusal = (param: string) => ({
    status: 400,
    headers: { "content-type": "application/json" },
    writes: [JSON.stringify({ error: { message: "No.", param, code: null } })],
  });
  const paramOf = async (body: unknown, path?: string) =>
    Object(await (await other.postChat(body, path)).json()).error.param;
  try {
    for (const [theirs, own] of [
      ["max_tokens", "max_output_tokens"],
      ["messages.[2].content", "input"],
      ["response_format.json_schema", "text.format"],
      ["reasoning_effort", "reasoning.effort"],
      ["tools[0].function", "tools[0].function"],
    ] as const) {
      other.provider.play(refusal(theirs));
      expect(await paramOf(base, "/v1/responses")).toBe(own);
    }
    for (const [theirs, own] of [
      ["max_output_tokens", "max_tokens"],
      ["input[3].content", "messages"],
      ["messages.[2].content", "messages.[2].content"],
    ] as const) {
      other.provider.play(refusal(theirs));
      const chat = { model: "sonnet", messages: [{ role: "user", content: "Hello" }] };
      expect(await paramOf(chat)).toBe(own);
    }
  } finally {
    await other.stop();
  }
});

test("names its own field in the message, too", async () => {
  const response = await post({ ...base, max_output_tokens: 0 });
  const { message } = Object(await response.json()).error;
  expect(message).toMatch(/^max_output_tokens: must be an integer of at least 1/);
  const tooLong = "prompt is too long: 300000 tokens > 200000 maximum";
  stage.provider.play(errorAnswer(400, "invalid_request_error", tooLong));
  const long = await post(base);
  expect(await long.json()).toMatchObject({
    error: { code: "context_length_exceeded", param: "input" },
  });
});

describe("a request without means", () => {
  const cases = [
    { name: "no credits", status: 402, code: "insufficient_quota", calls: 1 },
    { name: "the month's cap", status: 402, code: "monthly_cap_reached", calls: 1 },
    { name: "the rate limit", status: 429, code: "rate_limit_exceeded", calls: 3 },
  ];
  test.each(cases)("$name: $status, and the SDK calls $calls times", async (expected) => {
    const { name, status, code, calls } = expected;
    const { core, call } = stage.gateway.admin;
    const poor =
      name === "no credits"
        ? await core.billing.createAccount({ settings: { name } }, call)
        : undefined;
    const { secret } = await core.keys.createKey(
      {
        accountId: poor?.account?.accountId ?? stage.gateway.accountId,
        family: Family.V1,
        settings: {
          name,
          ...(name === "the month's cap" && { monthlyCapMicrocredits: 0n }),
          ...(name === "the rate limit" && { requestsPerMinute: 1 }),
        },
      },
      call,
    );
    const seen: Response[] = [];
    const counting: typeof fetch = async (...given) => {
      const response = await fetch(...given);
      seen.push(response);
      const headers = new Headers(response.headers);
      headers.set("retry-after-ms", "1");
      return new Response(response.body, { status: response.status, headers });
    };
    const client = openai(stage, { apiKey: secret, maxRetries: 2, fetch: counting });
    if (status === 429) {
      stage.provider.play(stage.reply({ text: ["Hi"] }));
      await openai(stage, { apiKey: secret }).responses.create(base);
    }
    await expect(client.responses.create(base)).rejects.toMatchObject({
      status,
      code,
      param: null,
    });
    expect(seen).toHaveLength(calls);
    const retryAfter = seen[0]?.headers.get("retry-after") ?? "";
    expect(/^[1-9]\d*$/.test(retryAfter)).toBe(status === 429);
    if (status === 429) {
      expect(seen[0]?.headers.get("x-ratelimit-limit-requests")).toBe("1");
      return;
    }
    // Of a request for a stream, the stream fails at once: Codex would repeat the status.
    const response = await fetch(`${stage.gateway.address}/v1/responses`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        authorization: `Bearer ${secret}`,
        // Codex asks for its stream here too, which is known before the body is read.
        ...((name === "the month's cap" || name === "no credits") && {
          accept: "text/event-stream",
        }),
      },
      body: JSON.stringify({ ...base, stream: true }),
    });
    expect([response.status, response.headers.get("content-type")]).toEqual([
      200,
      "text/event-stream; charset=utf-8",
    ]);
    const events = readEvents(await response.text());
    expect(events.map(({ type }) => type)).toEqual([
      ...["response.created", "response.in_progress", "error", "response.failed"],
    ]);
    expect(events[2]?.error).toMatchObject({ type: "insufficient_quota", code });
    expect(events[3]?.response).toMatchObject({
      status: "failed",
      error: { code: "invalid_prompt", message: Object(events[2]?.error).message },
    });
  });
});

describe("a stream that fails", () => {
  test("before its first event has a status", async () => {
    stage.provider.play({ status: 500, writes: ["{}"] }, { status: 500, writes: ["{}"] });
    const response = await post({ ...base, stream: true });
    expect(response.status).toBe(502);
  });

  test("later ends with response.failed", async () => {
    const events = nativeEvents({ text: ["Hel", "lo"] });
    const error = sseEvent("error", { error: { type: "overloaded_error", message: "Busy." } });
    stage.provider.play({
      headers: { "content-type": "text/event-stream" },
      writes: [...events.slice(0, 3), error],
    });
    const response = await post({ ...base, stream: true });
    const text = await response.text();
    const last = text.trim().split("\n\n").at(-1) ?? "";
    expect(last).toMatch(/^event: response\.failed\n/);
    const data = JSON.parse(last.split("data: ")[1] ?? "");
    expect(data.response).toMatchObject({
      status: "failed",
      error: { code: "overloaded", message: expect.any(String) },
    });
    expect(text).not.toContain("response.completed");
  });
});
