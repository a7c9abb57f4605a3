// Members of a provider's answers and errors, and of requests, that must reach the other side:
// through whole gateways, over HTTP.

import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readCatalogFile } from "../../../src/config/catalog.ts";
import { catalogFor } from "../../support/catalog.ts";
import { startTestGateway, type TestGateway } from "../../support/gateway.ts";
import {
  type GatewayWithProvider,
  readEvents,
  smallBody,
  startGatewayWithProvider,
} from "../../support/gateway-with-provider.ts";
import {
  chatAnswer,
  chatErrorAnswer,
  chatStream,
  nativeAnswer,
  nativeStream,
} from "../../support/provider-answers.ts";
import { streamOf } from "../../support/samples/chat-bodies.ts";
import { joinChat, joinNative } from "./read-answer.ts";

const json = { "content-type": "application/json" };
const sse = { "content-type": "text/event-stream" };

describe("a chat provider", () => {
  let parts: GatewayWithProvider;
  beforeAll(async () => {
    parts = await startGatewayWithProvider("chat");
  });
  afterAll(() => parts.stop());

  test("its URL citations reach chat clients, and native clients get none of them", async () => {
    const annotations = [
      {
        type: "url_citation",
        url_citation: { start_index: 0, end_index: 5, title: "T", url: "https://example.com" },
      },
    ];
    const choice = { index: 0, finish_reason: "stop" };
    const whole = { choices: [{ ...choice, message: { content: "Hello", annotations } }] };
    const stream = streamOf(
      { choices: [{ index: 0, delta: { content: "Hello" } }] },
      { choices: [{ ...choice, delta: { annotations } }] },
      "[DONE]",
    );
    parts.provider.always(({ body }) =>
      body.stream === true
        ? { headers: sse, writes: [stream] }
        : { headers: json, writes: [JSON.stringify(whole)] },
    );
    const plain = await (await parts.postChat(smallBody)).json();
    expect(plain).toMatchObject({ choices: [{ message: { content: "Hello", annotations } }] });
    const streamed = await (await parts.postChat({ ...smallBody, stream: true })).text();
    expect(joinChat(streamed)).toMatchObject({ choices: [{ message: { annotations } }] });
    for (const wanted of [false, true]) {
      const native = await (await parts.post({ ...smallBody, stream: wanted })).text();
      expect(native).not.toContain("annotations");
    }
  });

  test("images that its model made reach chat and Responses clients, and come back to it", async () => {
    const data = "iVBORw0KGgo=";
    const images = [
      { type: "image_url", index: 0, image_url: { url: `data:image/png;base64,${data}` } },
    ];
    const message = { role: "assistant", content: "Here", images };
    const choice = { index: 0, finish_reason: "stop" };
    parts.provider.always(({ body }) =>
      body.stream === true
        ? {
            headers: sse,
            writes: [
              streamOf(
                { choices: [{ index: 0, delta: { content: "Here" } }] },
                { choices: [{ index: 0, delta: { images } }] },
                { choices: [{ ...choice, delta: {} }] },
                "[DONE]",
              ),
            ],
          }
        : { headers: json, writes: [JSON.stringify({ choices: [{ ...choice, message }] })] },
    );
    for (const stream of [false, true]) {
      const chat = await (await parts.postChat({ ...smallBody, stream })).text();
      expect(chat).toContain(JSON.stringify(images));
      const native = await (await parts.post({ ...smallBody, stream })).text();
      expect(native).toContain("Here");
      expect(native).not.toContain(data);
      const body = { model: smallBody.model, input: "Draw.", stream };
      const response = await (await parts.postChat(body, "/v1/responses")).text();
      expect(response).toMatch(/"type":"image_generation_call","status":"completed"/);
      expect(response).toContain(`"result":"${data}"`);
    }
    const messages = [
      { role: "user", content: "Draw." },
      message,
      { role: "user", content: "Again." },
    ];
    await parts.postChat({ ...smallBody, messages });
    expect(parts.provider.requests.at(-1)?.body.messages).toEqual(messages);
    const item = { type: "image_generation_call", id: "ig_1", status: "completed", result: data };
    const input = [{ role: "user", content: "Draw." }, item, { role: "user", content: "Again." }];
    const again = await parts.postChat({ model: smallBody.model, input }, "/v1/responses");
    expect(again.status).toBe(200);
    expect(JSON.stringify(parts.provider.requests.at(-1)?.body)).not.toContain(data);
  });

  test("a 400 keeps its code and param, before an answer and instead of its events", async () => {
    const error = {
      message: "Unsupported value",
      type: "invalid_request_error",
      param: "temperature",
      code: "unsupported_value",
    };
    const refusals = [
      { status: 400, headers: json, writes: [JSON.stringify({ error })] },
      { headers: sse, writes: [streamOf({ error })] },
    ];
    for (const refusal of refusals) {
      parts.provider.always(refusal);
      const chat = await parts.postChat({ ...smallBody, stream: true });
      expect([chat.status, await chat.json()]).toEqual([400, { error }]);
    }
    parts.provider.always(chatErrorAnswer(400, "unsupported_value", "Unsupported value"));
    expect(await (await parts.post(smallBody)).json()).toMatchObject({
      type: "error",
      error: { type: "invalid_request_error", code: "unsupported_value" },
    });
  });

  test("strict tools of clients of both formats stay strict", async () => {
    parts.provider.always(chatAnswer({ text: ["Hi"] }));
    const schema = { type: "object", properties: {}, additionalProperties: false };
    const strict = { type: "function", function: { name: "f", parameters: schema, strict: true } };
    await parts.postChat({ ...smallBody, tools: [strict] });
    expect(parts.provider.requests.at(-1)?.body.tools).toEqual([strict]);
    await parts.post({ ...smallBody, tools: [{ name: "f", input_schema: schema, strict: true }] });
    expect(parts.provider.requests.at(-1)?.body.tools).toEqual([strict]);
    const loose = { type: "function", function: { name: "f", parameters: schema } };
    await parts.postChat({ ...smallBody, tools: [loose] });
    expect(parts.provider.requests.at(-1)?.body.tools).toEqual([loose]);
  });

  test("a request with instructions only reaches it as it is", async () => {
    parts.provider.always(chatAnswer({ text: ["Hi"] }));
    const messages = ["Be brief.", "Say hello."].map((content) => ({ role: "system", content }));
    const answer = await parts.postChat({ ...smallBody, messages });
    expect(answer.status).toBe(200);
    expect(parts.provider.requests.at(-1)?.body.messages).toEqual(messages);
  });

  test("the usage that comes with an error in the middle of an answer is charged", async () => {
    const error = { message: "Provider disconnected", code: 502 };
    const usage = { prompt_tokens: 33, completion_tokens: 7, total_tokens: 40 };
    parts.provider.always({
      headers: sse,
      writes: [
        streamOf(
          { choices: [{ index: 0, delta: { content: "Hello" } }] },
          { error, usage, choices: [{ index: 0, delta: {}, finish_reason: "error" }] },
        ),
      ],
    });
    const answer = await parts.postChat({ ...smallBody, stream: true });
    expect(await answer.text()).toContain('"code":"upstream_error"');
    const { address, v1 } = parts.gateway;
    const url = `${address}/v1/receipts/${answer.headers.get("x-request-id")}`;
    // A failed answer is charged just after its end.
    await expect
      .poll(async () => (await fetch(url, { headers: { authorization: `Bearer ${v1}` } })).json())
      .toMatchObject({ outcome: "PROVIDER_BROKE", tokens: { input: 33, output: 7 } });
  });
});

test.each([
  { name: "the type", status: 500, error: { type: "overloaded_error", message: "Try later" } },
  { name: "the code", status: 503, error: { code: "overloaded", message: "Try later" } },
  {
    name: "the message, in a list",
    status: 503,
    error: [{ error: { code: 503, message: "The model is overloaded.", status: "UNAVAILABLE" } }],
  },
])("an overload in $name of an error body is overloaded here", async ({ status, error }) => {
  // A gateway of its own, because overloads reduce the share of its provider.
  const parts = await startGatewayWithProvider("chat");
  const body = Array.isArray(error) ? error : { error };
  parts.provider.always({ status, headers: json, writes: [JSON.stringify(body)] });
  const chat = await parts.postChat(smallBody);
  expect([chat.status, await chat.json()]).toMatchObject([503, { error: { code: "overloaded" } }]);
  const native = await parts.post(smallBody);
  expect([native.status, await native.json()]).toMatchObject([
    529,
    { error: { type: "overloaded_error" } },
  ]);
  await parts.stop();
});

test("the limit of the model is the limit where the client names none, or a larger one", async () => {
  const parts = await startGatewayWithProvider("chat");
  const { provider } = parts;
  try {
    provider.always(chatStream({ text: ["Hi"] }));
    const limitOf = async (members: JsonObject) => {
      const { max_tokens: _, ...body } = smallBody;
      const answer = await parts.postChat({ ...body, ...members });
      expect([answer.status, await answer.text()]).toMatchObject([200, expect.any(String)]);
      const lowered = answer.headers.get("x-gateway-max-tokens");
      return [provider.requests.at(-1)?.body.max_tokens, lowered];
    };
    expect(await limitOf({})).toEqual([64_000, null]);
    expect(await limitOf({ max_tokens: 8_000 })).toEqual([8_000, null]);
    for (const max_tokens of [64_001, 10 ** 12])
      expect(await limitOf({ max_tokens })).toEqual([64_000, "64000"]);
  } finally {
    await parts.stop();
  }
});

describe("a gateway in front of a gateway to a native provider", () => {
  let inner: GatewayWithProvider;
  let outer: TestGateway;
  beforeAll(async () => {
    inner = await startGatewayWithProvider("native");
    const { address, v1 } = inner.gateway;
    const more = `cache_marks: true, headers: { authorization: "Bearer ${v1}" }`;
    const routes = "[[{ provider: inner, model: haiku }]]";
    outer = await startTestGateway({
      catalog: readCatalogFile(
        catalogFor({ inner: { kind: "openai", url: address, more } }, routes),
      ),
    });
  });
  afterAll(async () => {
    await outer.stop();
    await inner.stop();
  });

  test("thinking stays signed, in the answer and in the history of the next request", async () => {
    const content = {
      thinking: { pieces: ["Let me ", "see."], signature: "c2lnbmVk" },
      tool: { id: "toolu_1", name: "f", input: ["{}"] },
      stopReason: "tool_use",
    };
    inner.provider.always(({ body }) =>
      body.stream === true ? nativeStream(content) : nativeAnswer(content),
    );
    const post = (body: JsonObject) =>
      fetch(`${outer.address}/v1/messages`, {
        method: "POST",
        headers: { ...json, "x-api-key": outer.v1, "anthropic-version": "2023-06-01" },
        body: JSON.stringify(body),
      });
    const signed = { type: "thinking", thinking: "Let me see.", signature: "c2lnbmVk" };
    const call = { type: "tool_use", id: "toolu_1", name: "f", input: {} };
    const plain = await (await post(smallBody)).json();
    expect(plain).toMatchObject({ content: [signed, call] });
    const stream = await (await post({ ...smallBody, stream: true })).text();
    expect(joinNative(stream).content).toMatchObject([signed, { type: "tool_use" }]);
    expect(readEvents(stream).at(-1)).toEqual({ type: "message_stop" });

    const result = { type: "tool_result", tool_use_id: "toolu_1", content: "done" };
    const history = [
      ...smallBody.messages,
      { role: "assistant", content: [signed, call] },
      { role: "user", content: [result] },
    ];
    const tools = [{ name: "f", input_schema: { type: "object", properties: {} } }];
    expect((await post({ ...smallBody, tools, messages: history })).status).toBe(200);
    expect(inner.provider.requests.at(-1)?.body.messages).toMatchObject([
      { role: "user" },
      { role: "assistant", content: [signed, call] },
      { role: "user", content: [result] },
    ]);
  });
});
